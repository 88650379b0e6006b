"""A project's own record of calls: one JSON line each in `.godot_mcp/audit.log`, secrets removed, rotated."""

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

from backends.godot import files
from backends.godot.paths import OURS, Place, Project
from gateway.contract import Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.godot")

HIDDEN: Final = "[redacted]"
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|(api|private|access|client|auth|session)[-_ ]?key",
    re.I,
)
_MAX_TEXT: Final = 500
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6


def redacted(value: Any, depth: int = 0) -> Any:
    """The value with secrets hidden by the name they go under, and cut to a readable size."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        entries = list(cast("Json", value).items())[:_MAX_ITEMS]
        return {
            name[:_MAX_TEXT]: HIDDEN if _SECRET.search(name) else redacted(held, depth + 1) for name, held in entries
        }
    if isinstance(value, list):
        return [redacted(held, depth + 1) for held in cast("list[Any]", value)[:_MAX_ITEMS]]
    if isinstance(value, str):
        return _inner(value, depth) if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
    return value


def _inner(text: str, depth: int) -> Any:
    """Some tools take JSON as text: a secret in it is no less secret."""
    if text[:1] in "{[" and _SECRET.search(text):
        try:
            return json.dumps(redacted(json.loads(text), depth + 1), ensure_ascii=False)
        except ValueError:
            return HIDDEN
    return text


@dataclass(frozen=True, slots=True)
class AuditLog:
    max_bytes: int
    backups: int

    def write(self, project: Project, correlation_id: str, tool: str, arguments: Json, end: Json) -> None:
        """`end` is `ok` and `summary`, with `error` for a failure. What cannot be written is only logged: the call
        itself is over, and the gateway's own audit has it."""
        line: Json = {
            "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "correlationId": correlation_id,
            "tool": tool,
            "args": redacted(arguments),
            **end,
        }
        try:
            current = self._place(project, "")
            raw = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            if self._size(current) + len(raw) > self.max_bytes:
                self._set_aside(project)
            files.append(current, raw)
        except Fault as fault:
            log.warning("audit.log not written: %s", fault.message, extra={"correlation_id": correlation_id})

    def _place(self, project: Project, suffix: str) -> Place:
        # Not resolved: a link put in the place of our folder is refused when it is opened.
        return Place(project.root, project.root / OURS / f"audit.log{suffix}")

    def _size(self, place: Place) -> int:
        with suppress(OSError):
            return place.path.lstat().st_size
        return 0

    def _set_aside(self, project: Project) -> None:
        for number in range(self.backups, 0, -1):
            older = self._place(project, f".{number}")
            newer = self._place(project, f".{number - 1}" if number > 1 else "")
            for step in (partial(files.delete, older), partial(files.rename, newer, older)):
                try:
                    step()
                except Fault as fault:
                    if fault.kind is not Kind.NOT_FOUND:
                        raise
        if not self.backups:
            files.delete(self._place(project, ""))
