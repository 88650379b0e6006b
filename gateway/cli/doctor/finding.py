"""The result of one check of `gatehouse doctor`."""

from dataclasses import dataclass
from typing import Literal

from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding. `bad` prevents the gateway or a part of it from working; `warning` is a risk."""

    part: str
    state: Literal["good", "warning", "bad"]
    message: str
    """Description of the state."""
    fix: str = ""
    """Suggested fix."""

    def to_json(self) -> Json:
        return {"part": self.part, "state": self.state, "words": self.message, "mend": self.fix}


def passed(part: str, message: str) -> DoctorFinding:
    return DoctorFinding(part, "good", message)


def warning(part: str, message: str, fix: str) -> DoctorFinding:
    return DoctorFinding(part, "warning", message, fix)


def failed(part: str, message: str, fix: str) -> DoctorFinding:
    return DoctorFinding(part, "bad", message, fix)
