"""What the engine says on its standard error, sorted: failures, warnings, and notices that mean nothing went wrong."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from gateway.contract import Json

_HEAD: Final = re.compile(r"^(USER |SCRIPT |SHADER )?(ERROR|WARNING): (?P<text>.*)$")
_AT: Final = re.compile(r"^\s+at: (?P<where>.*)$")
_PLACE: Final = re.compile(r"\((?P<file>res://[^:)]+):(?P<line>\d+)\)")
# Said at the end of a run that went well.
_HARMLESS: Final = re.compile(
    r"leaked|RID allocations|ObjectDB instances|resources? still in use at exit|Pages in use exist at exit"
    r"|BUG: Unreferenced",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Message:
    severity: Literal["error", "warning"]
    text: str
    file: str | None = None
    line: int | None = None

    def as_json(self) -> Json:
        shown: Json = {"severity": self.severity, "message": self.text}
        if self.file is not None:
            shown |= {"file": self.file, "line": self.line}
        return shown


def messages(lines: list[str]) -> list[Message]:
    """Errors and warnings with the place they point at; leak notices are left out."""
    found: list[Message] = []
    for line in lines:
        if (head := _HEAD.match(line)) is not None:
            severity: Literal["error", "warning"] = "error" if head[2] == "ERROR" else "warning"
            found.append(Message(severity, head["text"]))
            continue
        at = _AT.match(line)
        place = _PLACE.search(at["where"]) if at else None
        if place is not None and found and found[-1].file is None:
            last = found.pop()
            found.append(Message(last.severity, last.text, place["file"], int(place["line"])))
    return [each for each in found if not _HARMLESS.search(each.text)]


def errors(lines: list[str]) -> list[Message]:
    return [each for each in messages(lines) if each.severity == "error"]
