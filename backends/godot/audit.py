"""Per-project audit log: one JSON line per call in `.godot_mcp/audit.log`, with redaction and rotation."""

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

from backends.godot import files
from backends.godot.paths import DATA_FOLDER, Project, ProjectPath
from gateway.contract import Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.godot")

REDACTED: Final = "[redacted]"
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|(api|private|access|client|auth|session)[-_ ]?key",
    re.I,
)
_MAX_TEXT: Final = 500
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6


def redact(value: Any, depth: int = 0) -> Any:
    """Return the value with secrets replaced, by the name of their key, and truncated to a readable size."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        entries = list(cast("Json", value).items())[:_MAX_ITEMS]
        return {
            name[:_MAX_TEXT]: REDACTED if _SECRET.search(name) else redact(item, depth + 1) for name, item in entries
        }
    if isinstance(value, list):
        return [redact(item, depth + 1) for item in cast("list[Any]", value)[:_MAX_ITEMS]]
    if isinstance(value, str):
        return _redact_json_text(value, depth) if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
    return value


def _redact_json_text(text: str, depth: int) -> Any:
    """Redact inside a string that contains JSON: some tools accept JSON as text."""
    if text[:1] in "{[" and _SECRET.search(text):
        try:
            return json.dumps(redact(json.loads(text), depth + 1), ensure_ascii=False)
        except ValueError:
            return REDACTED
    return text


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Appends to the audit logs of all projects. A log that exceeds `max_bytes` is rotated; `backups` are kept."""

    max_bytes: int
    backups: int

    def write(self, project: Project, correlation_id: str, tool: str, arguments: Json, outcome: Json) -> None:
        """Append one line. `outcome` contains `ok` and `summary`, and `error` for a failure.

        A write failure is only logged: the call has finished, and the gateway's own audit has it.
        """
        line: Json = {
            "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "correlationId": correlation_id,
            "tool": tool,
            "args": redact(arguments),
            **outcome,
        }
        try:
            current = self._log_path(project, "")
            raw = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            if self._size(current) + len(raw) > self.max_bytes:
                self._rotate(project)
            files.append(current, raw)
        except Fault as fault:
            log.warning(
                "godot audit: write failed, line dropped: %s", fault.message, extra={"correlation_id": correlation_id}
            )

    def _log_path(self, project: Project, suffix: str) -> ProjectPath:
        # The path is not resolved: opening fails when a symbolic link has replaced the data folder.
        return ProjectPath(project.root, project.root / DATA_FOLDER / f"audit.log{suffix}")

    def _size(self, location: ProjectPath) -> int:
        with suppress(OSError):
            return location.path.lstat().st_size
        return 0

    def _rotate(self, project: Project) -> None:
        for number in range(self.backups, 0, -1):
            older = self._log_path(project, f".{number}")
            newer = self._log_path(project, f".{number - 1}" if number > 1 else "")
            for step in (partial(files.delete, older), partial(files.rename, newer, older)):
                try:
                    step()
                except Fault as fault:
                    if fault.kind is not Kind.NOT_FOUND:
                        raise
        if not self.backups:
            files.delete(self._log_path(project, ""))
