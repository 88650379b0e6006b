import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.stdio.line_reader import ClippedLineReader, LineReader, LineTooLong


@given(st.lists(st.binary(max_size=8)))
def test_lines_do_not_depend_on_chunk_boundaries(chunks: list[bytes]) -> None:
    lines = LineReader(1000)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    assert found == b"".join(chunks).split(b"\n")[:-1]


def test_threat_33_line_over_the_limit_is_rejected_before_its_end() -> None:
    lines = LineReader(10)
    assert lines.feed(b"0123456789\n") == [b"0123456789"]
    lines.feed(b"01234")
    with pytest.raises(LineTooLong):
        lines.feed(b"567890")


def test_clipped_reader_truncates_a_long_line_and_returns_the_next_whole() -> None:
    assert ClippedLineReader(4).feed(b"012345\n67\n") == [b"0123", b"67"]
