"""Cursors that clients carry between two pages."""

import base64

import pytest

from gateway.errors import Fault, Kind
from gateway.protocol.sealed_tokens import SealedCursorCodec, TokenSeal

CURSORS = SealedCursorCodec(TokenSeal([b"k" * 32]))


def test_a_cursor_comes_back_as_the_page_it_was_made_for_and_shows_nothing() -> None:
    cursor = CURSORS.mint("tools/list", 3)
    assert CURSORS.read("tools/list", cursor) == 3
    assert cursor != CURSORS.mint("tools/list", 3)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        base64.urlsafe_b64encode(b"page:1").decode(),
        CURSORS.mint("prompts/list", 1),
        CURSORS.mint("tools/list", 1)[:-8],
        SealedCursorCodec(TokenSeal([b"o" * 32])).mint("tools/list", 1),
        "\u0661",
    ],
    ids=["empty", "a word", "unsealed", "another list's", "torn", "another house's", "a digit of another script"],
)
def test_any_other_is_refused_alike(cursor: str) -> None:
    with pytest.raises(Fault) as refused:
        CURSORS.read("tools/list", cursor)
    assert refused.value.kind is Kind.INVALID_INPUT
