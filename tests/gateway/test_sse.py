from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sse import KEEP_ALIVE_COMMENT, EventTooLarge, SseEvent, SseParser, event, priming_event

fuzzed = settings(deadline=None)
lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)


def parse(stream: bytes) -> list[SseEvent]:
    return SseParser().feed(stream)


def split(stream: bytes, offsets: list[int]) -> list[bytes]:
    edges = [0, *sorted(offset % (len(stream) + 1) for offset in offsets), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


# ---- encoding


def test_event_fields_have_a_fixed_order() -> None:
    assert event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert event(b"{}", id="7", retry=500, name="ping") == b"id: 7\nretry: 500\nevent: ping\ndata: {}\n\n"


def test_priming_event_has_an_id_and_no_data() -> None:
    assert priming_event("w1-1", retry=3000) == b"id: w1-1\nretry: 3000\ndata: \n\n"
    assert parse(priming_event("w1-1")) == [SseEvent(b"", id="w1-1")]


def test_comment_is_not_an_event() -> None:
    assert parse(KEEP_ALIVE_COMMENT * 3) == []


@pytest.mark.parametrize("data", [b'{"a":\n1}', b'{"a":\r1}', b'{"a":\r\n1}'])
def test_line_break_inside_the_data_does_not_end_the_event(data: bytes) -> None:
    assert parse(event(data)) == [SseEvent(b'{"a":\n1}')]


@pytest.mark.parametrize("field", ["a\nb", "a\rb", "a\0b"])
def test_field_with_a_line_break_raises_value_error(field: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        event(b"{}", id=field)
    with pytest.raises(ValueError, match="one line"):
        event(b"{}", name=field)


# ---- the parser, with the examples and rules of the HTML standard


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [SseEvent(b"YHOO\n+2\n10")]),
        (b": test stream\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n",
         [SseEvent(b"first", id="1"), SseEvent(b"second"), SseEvent(b" third")]),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(b""), SseEvent(b"\n")]),
        (b"data:test\n\ndata: test\n\n", [SseEvent(b"test"), SseEvent(b"test")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [SseEvent(b"a")]),
        (b"event: add\ndata: 1\n\ndata: 2\n\n", [SseEvent(b"1", "add"), SseEvent(b"2")]),
        (b"event: add\n\ndata: 2\n\n", [SseEvent(b"2")]),
        (b"id: 1\n\ndata: a\n\n", [SseEvent(b"a", id="1")]),
        (b"id: 1\nid: a\0b\ndata: a\n\n", [SseEvent(b"a", id="1")]),
        (b"Data: x\n data: x\nfoo: x\n\n", []),
        (b"data: unfinished\n", []),
        (b"data: a:b: c\n\n", [SseEvent(b"a:b: c")]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\n", [SseEvent(b"a"), SseEvent(b"b"), SseEvent(b"c")]),
        ("data: é\u2028x\nid: é\n\n".encode(), [SseEvent("é\u2028x".encode(), id="é")]),
    ],
)  # fmt: skip
def test_stream_is_parsed_as_the_standard_requires_in_any_chunks(stream: bytes, events: list[SseEvent]) -> None:
    assert parse(stream) == events
    byte_by_byte = SseParser()
    assert [event for byte in stream for event in byte_by_byte.feed(bytes([byte]))] == events


@pytest.mark.parametrize(
    ("value", "retry"),
    [(b"1500", 1500), (b"0", 0), (b"-1", None), (b"1.5", None), (b"1e3", None), (b"", None), (b" 1", None),
     ("٣".encode(), None), (b"9" * 5000, None)],
)  # fmt: skip
def test_only_digits_set_the_reconnection_delay(value: bytes, retry: int | None) -> None:
    parser = SseParser()
    assert parser.feed(b"retry: " + value + b"\n\n") == []
    assert parser.retry == retry


def test_last_id_persists_after_its_event() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 9\n\ndata: a\n\n") == [SseEvent(b"a", id="9")]
    assert parser.last_id == "9"
    parser.feed(b"id:\n\n")
    assert parser.last_id == ""


def test_carriage_return_at_the_end_of_a_chunk_does_not_wait_for_a_line_feed() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\r") == [SseEvent(b"a")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\r\n") == [SseEvent(b"b")]


@fuzzed
@given(st.lists(st.tuples(lines, lines)), st.sampled_from(["\n", "\r", "\r\n"]), st.lists(st.integers(0, 10_000)))
def test_encoded_events_parse_back_with_any_line_ending_and_chunks(
    messages: list[tuple[str, str]], end: str, offsets: list[int]
) -> None:
    stream = b"".join(event(data.encode(), id=id) for data, id in messages).replace(b"\n", end.encode())
    parser = SseParser()
    events = [event for chunk in split(stream, offsets) for event in parser.feed(chunk)]
    assert events == [SseEvent(data.encode(), id=id) for data, id in messages]


@fuzzed
@given(
    st.text(alphabet="dataidevent:retry \r\n\0\ufeff1é").map(str.encode) | st.binary(), st.lists(st.integers(0, 10_000))
)
def test_any_bytes_parse_the_same_whole_and_in_chunks(stream: bytes, offsets: list[int]) -> None:
    whole, pieces = SseParser(), SseParser()
    expected = whole.feed(stream)
    assert [event for chunk in split(stream, offsets) for event in pieces.feed(chunk)] == expected
    assert (pieces.last_id, pieces.retry) == (whole.last_id, whole.retry)


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 200, b"data: x\n" * 200, b"data\n" * 200, b"x" * 200, b": " + b"x" * 200]
)
def test_event_or_line_above_the_limit_is_rejected(stream: bytes) -> None:
    for size in (1, 7, len(stream)):
        parser = SseParser(limit=100)
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
        with pytest.raises(EventTooLarge):
            list(map(parser.feed, chunks))


def test_limit_applies_to_each_event_not_to_the_stream() -> None:
    parser = SseParser(limit=100)
    assert len(parser.feed((KEEP_ALIVE_COMMENT + event(b"x" * 50)) * 50)) == 50


def test_parsing_byte_by_byte_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        stream = [bytes([byte]) for byte in b"data: " + b"x" * size + b"\n\n"]
        parser = SseParser()
        started = process_time()
        for chunk in stream:
            parser.feed(chunk)
        return process_time() - started

    small = min(seconds(20_000) for _ in range(3))
    assert min(seconds(160_000) for _ in range(3)) < 24 * small + 0.01
