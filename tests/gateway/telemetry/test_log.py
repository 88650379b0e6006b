"""Log lines: one record per line, for any content."""

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.telemetry.log import JsonFormatter, LogLines, TextFormatter, clean, encode_line, format_timestamp

HOSTILE = {
    "CRLF": 'a\r\n{"level":"info","message":"call"}',
    "escape": "a\x1b[2J\x1b]0;title\x07",
    "C1": "a\x9b31m\x85b",
    "U+2028": "a\u2028b\u2029c",
    "fake JSON": '","outcome":"ok"},{"level":"info',
    "backslashes": '\\"\\\\n\\',
    "NUL and DEL": "a\0b\x7f",
    "bidi": "a\u202eb\u2066",
    "lone surrogate": "a\ud800b",
}
KEY = "gth_abcdefghijkl_" + "s3cret-" * 6 + "S_123456"


def record(message: str, *args: object, exc: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    info = (type(exc), exc, exc.__traceback__) if exc else None
    made = logging.LogRecord("gatehouse.x", logging.WARNING, __file__, 1, message, args, info)
    made.__dict__.update(extra)
    return made


def raised(exc: Exception) -> Exception:
    try:
        raise exc
    except Exception as caught:
        return caught


def parsed(line: str) -> dict[str, Any]:
    """Parse a line. It must be printable ASCII and one JSON object without duplicate members."""
    assert line.isascii()
    assert line.isprintable()

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(line, object_pairs_hook=reject_duplicates)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_text_cannot_end_or_forge_a_json_line(text: str) -> None:
    exc = raised(ValueError(text))
    fields = parsed(JsonFormatter().format(record("received %s", text, exc=exc, correlation_id=text)))
    assert fields["message"] == f"received {text}"
    assert (fields["level"], fields["logger"], fields["correlation_id"]) == ("warning", "gatehouse.x", text)
    assert "ValueError" in fields["cause"]


@settings(deadline=None)
@given(st.text(), st.text())
def test_threat_28_encoded_fields_decode_unchanged(name: str, value: str) -> None:
    assert parsed(encode_line({"a": value, "b": {name: [value]}})) == {"a": value, "b": {name: [value]}}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_traceback_in_text_format_is_printable(text: str) -> None:
    formatted = TextFormatter().format(record("it failed", exc=raised(ValueError(text))))
    assert all(line.isprintable() for line in formatted.split("\n"))


@pytest.mark.parametrize("text", [each for each in HOSTILE.values() if not each.isprintable()])
def test_threat_28_message_in_text_format_is_one_printable_line(text: str) -> None:
    formatted = TextFormatter().format(record("received %s", text))
    assert formatted.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"key {KEY}.",
        f"Authorization: Bearer {KEY}",
        "bearer eyJhbGciOi.eyJzdWIi.sig",
        f"https://x.test/?key={KEY}&a=1",
    ],
)
@pytest.mark.parametrize("form", [JsonFormatter, TextFormatter])
def test_credential_is_not_logged(form: Callable[[], logging.Formatter], text: str) -> None:
    formatted = form().format(record("received %s", text, exc=raised(ValueError(text))))
    assert "s3cret" not in formatted
    assert "eyJ" not in formatted


@pytest.mark.parametrize(
    "text", ["BEARER eyJhbGciOi.eyJzdWIi.sig", "Bearer\teyJhbGciOi.eyJzdWIi.sig", "Bearer  eyJhbGciOi.eyJzdWIi.sig"]
)
def test_bearer_token_is_redacted_in_any_spelling(text: str) -> None:
    assert "eyJ" not in clean(text)


def test_redacted_key_keeps_its_prefix() -> None:
    assert clean(KEY).startswith("gth_abcd")


def test_long_text_is_truncated() -> None:
    assert len(clean("x" * 100_000)) <= 1025
    assert len(JsonFormatter().format(record("x" * 100_000))) < 2000


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert format_timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert format_timestamp(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"


# ---- writing


def test_without_timer_each_line_is_written_immediately() -> None:
    stream = io.StringIO()
    lines = LogLines(stream)
    lines.put("a")
    lines.put("b")
    assert stream.getvalue() == "a\nb\n"


def test_with_timer_lines_are_written_in_batches_without_loss() -> None:
    stream = io.StringIO()
    timers: list[Callable[[], None]] = []
    lines = LogLines(stream, lambda seconds, call: timers.append(call))
    for number in range(3):
        lines.put(str(number))
    assert (stream.getvalue(), len(timers)) == ("", 1)
    timers.pop()()
    assert stream.getvalue() == "0\n1\n2\n"
    for number in range(600):
        lines.put(str(number))
    lines.flush()
    assert len(stream.getvalue().splitlines()) == 603
