"""Monotonic ULIDs: 26 characters whose order is the order of creation, whatever the clock does."""

import re
import secrets
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_RANDOM_BITS: Final = 80
ULID: Final = re.compile(f"[0-7][{_ALPHABET}]{{25}}")


def next_id(last: str, milliseconds: int) -> str:
    """An id after `last`, which is empty for the first."""
    previous = _decode(last) if last else 0
    # The top bit is left clear, so that one millisecond has room for more ids than it can ever make.
    fresh = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
    return _encode(fresh if milliseconds > previous >> _RANDOM_BITS else previous + 1)


def _encode(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def _decode(text: str) -> int:
    value = 0
    for letter in text:
        value = value << 5 | _VALUES[letter]
    return value
