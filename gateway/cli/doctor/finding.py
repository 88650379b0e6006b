"""What one look found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`bad` keeps the gateway, or a part of it, from working; `warning` will be missed one day."""

    part: str
    state: Literal["good", "warning", "bad"]
    words: str
    mend: str = ""


def good(part: str, words: str) -> DoctorFinding:
    return DoctorFinding(part, "good", words)


def warning(part: str, words: str, mend: str) -> DoctorFinding:
    return DoctorFinding(part, "warning", words, mend)


def bad(part: str, words: str, mend: str) -> DoctorFinding:
    return DoctorFinding(part, "bad", words, mend)
