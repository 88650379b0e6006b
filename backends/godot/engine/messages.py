"""Parser for errors and warnings in the engine's output. It ignores notices that do not indicate a failure."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from gateway.contract import Json

_HEAD: Final = re.compile(r"^(USER |SCRIPT |SHADER )?(ERROR|WARNING): (?P<text>.*)$")
_DETAILS: Final = re.compile(r"^\s+at: (?P<where>.*)$")
_SOURCE: Final = re.compile(r"\((?P<file>res://[^:)]+):(?P<line>\d+)\)")
# The engine prints these at exit even after a successful run.
_HARMLESS: Final = re.compile(
    r"leaked|RID allocations|ObjectDB instances|resources? still in use at exit|Pages in use exist at exit"
    r"|BUG: Unreferenced",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Message:
    """One error or warning, with its source location if the engine printed one."""

    severity: Literal["error", "warning"]
    text: str
    file: str | None = None
    line: int | None = None

    def as_json(self) -> Json:
        shown: Json = {"severity": self.severity, "message": self.text}
        if self.file is not None:
            shown |= {"file": self.file, "line": self.line}
        return shown


def parse_messages(lines: list[str]) -> list[Message]:
    """Return errors and warnings with their source locations, without leak notices."""
    found: list[Message] = []
    for line in lines:
        if (head := _HEAD.match(line)) is not None:
            severity: Literal["error", "warning"] = "error" if head[2] == "ERROR" else "warning"
            found.append(Message(severity, head["text"]))
            continue
        details_line = _DETAILS.match(line)
        source = _SOURCE.search(details_line["where"]) if details_line else None
        if source is not None and found and found[-1].file is None:
            last = found.pop()
            found.append(Message(last.severity, last.text, source["file"], int(source["line"])))
    return [each for each in found if not _HARMLESS.search(each.text)]


def parse_errors(lines: list[str]) -> list[Message]:
    return [each for each in parse_messages(lines) if each.severity == "error"]


_SHADER_LINE: Final = re.compile(r"\((?P<file>[^()]*):(?P<line>\d+)\)\s*$")


def parse_shader_errors(lines: list[str]) -> list[Message]:
    """Return the errors of the shader compiler, each with its line."""
    found: list[Message] = []
    for index, line in enumerate(lines):
        if line.startswith("SHADER ERROR: "):
            where = _SHADER_LINE.search(lines[index + 1]) if index + 1 < len(lines) else None
            file, number = (where["file"], int(where["line"])) if where else (None, None)
            found.append(Message("error", line.removeprefix("SHADER ERROR: "), file, number))
    return found
