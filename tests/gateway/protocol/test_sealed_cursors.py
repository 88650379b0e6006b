"""Sealed list cursors."""

import base64

import pytest

from gateway.errors import Fault, Kind
from gateway.protocol.sealed_tokens import SealedCursorCodec, TokenSeal

CURSORS = SealedCursorCodec(TokenSeal([b"k" * 32]))


def test_cursor_opens_to_its_page_and_is_opaque() -> None:
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
    ids=["empty", "text", "unsealed", "another list", "truncated", "another key", "a digit of another script"],
)
def test_any_other_cursor_is_rejected(cursor: str) -> None:
    with pytest.raises(Fault) as refused:
        CURSORS.read("tools/list", cursor)
    assert refused.value.kind is Kind.INVALID_INPUT
