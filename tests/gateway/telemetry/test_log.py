"""Lines of the log: one record each, whatever is in them."""

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.telemetry.log import JsonFormatter, LogLines, TextFormatter, as_line, clean, stamp

HOSTILE = {
    "CRLF": 'a\r\n{"level":"info","message":"call"}',
    "escape": "a\x1b[2J\x1b]0;title\x07",
    "C1": "a\x9b31m\x85b",
    "U+2028": "a\u2028b\u2029c",
    "fake JSON": '","outcome":"ok"},{"level":"info',
    "backslashes": '\\"\\\\n\\',
    "NUL and DEL": "a\0b\x7f",
    "bidi": "a\u202eb\u2066",
    "half a pair": "a\ud800b",
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
    """One line of printable ASCII that is one object, no member of it twice."""
    assert line.isascii()
    assert line.isprintable()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(line, object_pairs_hook=once)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_no_text_can_end_or_forge_a_json_line(text: str) -> None:
    exc = raised(ValueError(text))
    seen = parsed(JsonFormatter().format(record("it said %s", text, exc=exc, correlation_id=text)))
    assert seen["message"] == f"it said {text}"
    assert (seen["level"], seen["logger"], seen["correlation_id"]) == ("warning", "gatehouse.x", text)
    assert "ValueError" in seen["cause"]


@settings(deadline=None)
@given(st.text(), st.text())
def test_threat_28_any_fields_come_back_as_they_were(name: str, value: str) -> None:
    assert parsed(as_line({"a": value, "b": {name: [value]}})) == {"a": value, "b": {name: [value]}}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_threat_28_a_cause_in_text_form_cannot_reach_the_terminal_raw(text: str) -> None:
    shown = TextFormatter().format(record("it failed", exc=raised(ValueError(text))))
    assert all(line.isprintable() for line in shown.split("\n"))


@pytest.mark.parametrize("text", [each for each in HOSTILE.values() if not each.isprintable()])
def test_threat_28_a_message_in_text_form_is_one_printable_line(text: str) -> None:
    shown = TextFormatter().format(record("it said %s", text))
    assert shown.isprintable()


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
def test_a_credential_is_never_in_a_line(form: Callable[[], logging.Formatter], text: str) -> None:
    shown = form().format(record("it said %s", text, exc=raised(ValueError(text))))
    assert "s3cret" not in shown
    assert "eyJ" not in shown


@pytest.mark.parametrize(
    "text", ["BEARER eyJhbGciOi.eyJzdWIi.sig", "Bearer\teyJhbGciOi.eyJzdWIi.sig", "Bearer  eyJhbGciOi.eyJzdWIi.sig"]
)
def test_a_bearer_token_is_hidden_however_it_is_written(text: str) -> None:
    assert "eyJ" not in clean(text)


def test_a_key_keeps_its_first_letters_so_that_it_can_be_found() -> None:
    assert clean(KEY).startswith("gth_abcd")


def test_long_text_is_cut() -> None:
    assert len(clean("x" * 100_000)) <= 1025
    assert len(JsonFormatter().format(record("x" * 100_000))) < 2000


def test_times_are_utc_to_the_millisecond() -> None:
    assert stamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert stamp(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"


# ---- writing


def test_without_a_clock_each_line_is_written_at_once() -> None:
    stream = io.StringIO()
    lines = LogLines(stream)
    lines.put("a")
    lines.put("b")
    assert stream.getvalue() == "a\nb\n"


def test_with_a_clock_lines_are_written_in_groups_and_none_is_lost() -> None:
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
