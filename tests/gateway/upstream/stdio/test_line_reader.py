import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.stdio.line_reader import ClippedLineReader, LineReader, LineTooLong


@given(st.lists(st.binary(max_size=8)))
def test_lines_are_the_same_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    lines = LineReader(1000)
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert found == b"".join(pieces).split(b"\n")[:-1]


def test_threat_33_a_line_over_the_limit_is_refused_before_its_end() -> None:
    lines = LineReader(10)
    assert lines.feed(b"0123456789\n") == [b"0123456789"]
    lines.feed(b"01234")
    with pytest.raises(LineTooLong):
        lines.feed(b"567890")


def test_a_complaint_over_the_limit_is_cut_and_the_next_is_whole() -> None:
    assert ClippedLineReader(4).feed(b"012345\n67\n") == [b"0123", b"67"]
