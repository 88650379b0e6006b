"""The log of each workflow run; only the latest lines are kept."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.gox import runlog
from gateway.contract import Json, Store
from gateway.errors import Fault, Kind

_ADD: Final = text(
    "INSERT INTO workflow_logs (run_id, position, logged_at, level, message, step_id, action_id, may_repeat)"
    " SELECT :run_id, COALESCE(MAX(position), 0) + 1, :at, :level, :message, :step_id, :action_id, :may_repeat"
    " FROM workflow_logs"
    " WHERE run_id = :run_id"
)
_DROP: Final = text(
    "DELETE FROM workflow_logs WHERE run_id = :run_id AND position <="
    " (SELECT MAX(position) FROM workflow_logs WHERE run_id = :run_id) - :max_lines"
)
_ALL: Final = text(
    "SELECT logged_at, level, message, step_id, action_id, may_repeat FROM workflow_logs WHERE run_id = :run_id"
    " ORDER BY position"
)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


async def append(
    connection: AsyncConnection,
    run_id: str,
    max_lines: int,
    level: str,
    message: str,
    step_id: str | None = None,
    action_id: str | None = None,
    *,
    may_repeat: bool = False,
) -> None:
    row = {
        "level": level,
        "message": message,
        "step_id": step_id,
        "action_id": action_id,
        "may_repeat": int(may_repeat),
    }
    await connection.execute(_ADD, {"run_id": run_id, "at": runlog.now(), **row})
    await connection.execute(_DROP, {"run_id": run_id, "max_lines": max_lines})


async def read(store: Store, run_id: str, arguments: Json) -> list[Json]:
    """Return the last `limit` lines that match `level`, `stepId` and `since`."""
    since = _parse_since(arguments.get("since"))
    async with store.transaction() as connection:
        rows = (await connection.execute(_ALL, {"run_id": run_id})).all()
    lines = [_to_json(row) for row in rows]
    if (level := arguments.get("level")) is not None:
        lines = [line for line in lines if line["level"] == level.lower()]
    if (step_id := arguments.get("stepId")) is not None:
        lines = [line for line in lines if line.get("stepId") == step_id]
    lines = [line for line in lines if line["timestamp"] >= since]
    return lines[-arguments["limit"] :] if "limit" in arguments else lines


def _to_json(row: Any) -> Json:
    line: Json = {"timestamp": row.logged_at, "level": row.level, "message": row.message}
    optional = {"stepId": row.step_id, "actionId": row.action_id, "mayRepeat": True if row.may_repeat else None}
    return line | {key: value for key, value in optional.items() if value is not None}


def _parse_since(value: str | None) -> str:
    """Convert a time to the format of the stored timestamps, so that they can be compared as text."""
    if value is None:
        return ""
    match = _TIME.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        moment = datetime.fromisoformat(match[1] + match[3].upper().replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        details = {"validation_path": "input.since", "validation_rule": "format"}
        raise Fault(Kind.INVALID_INPUT, "since must be an RFC 3339 time", details=details) from exc
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{(match[2] or '').ljust(9, '0')}Z"
