"""Monotonic ULIDs: 26-character ids that sort in order of creation, even if the clock goes backwards."""

import re
import secrets
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_RANDOM_BITS: Final = 80
ULID: Final = re.compile(f"[0-7][{_ALPHABET}]{{25}}")


def next_id(last: str, milliseconds: int) -> str:
    """Return an id greater than `last`. `last` is empty for the first id."""
    previous = _decode(last) if last else 0
    # The top random bit stays clear, so that incrementing within one millisecond never overflows into the time.
    fresh = (milliseconds << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
    return _encode(fresh if milliseconds > previous >> _RANDOM_BITS else previous + 1)


def _encode(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def _decode(text: str) -> int:
    value = 0
    for letter in text:
        value = value << 5 | _VALUES[letter]
    return value
