"""What one look found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """`bad` keeps the gateway, or a part of it, from working; `warning` will be missed one day."""

    part: str
    state: Literal["good", "warning", "bad"]
    words: str
    mend: str = ""


def good(part: str, words: str) -> Finding:
    return Finding(part, "good", words)


def warning(part: str, words: str, mend: str) -> Finding:
    return Finding(part, "warning", words, mend)


def bad(part: str, words: str, mend: str) -> Finding:
    return Finding(part, "bad", words, mend)
