"""Runs of a tenant as a list, newest first: also those of which only the record in the log of runs is left."""

import re
from typing import Any, Final

from sqlalchemy import Row, text

from gateway.contract import Json, Store
from gateway.errors import Fault, Kind

_COLUMNS: Final = (
    "r.run_id, r.name, r.correlation_id, r.status, r.started_at, r.ended_at, r.diff_summary, r.error_code,"
    " r.error_message, w.total_steps, w.completed_steps, w.cancel_requested"
    " FROM runs r LEFT JOIN workflow_runs w ON w.run_id = r.run_id WHERE r.type = 'workflow'"
)
_ONE: Final = text(f"SELECT {_COLUMNS} AND r.run_id = :run_id")  # only our own columns
_PAGE: Final = text(
    f"SELECT {_COLUMNS} AND (:status = '' OR r.status = :status)"
    " ORDER BY r.started_at DESC, r.run_id DESC LIMIT :most OFFSET :start"
)
_PROGRESS: Final = re.compile(r"steps=(\d+)/(\d+)")


async def page(store: Store, status: str, limit: int, cursor: str | None) -> Json:
    """One page of snapshots. Raises `Fault(INVALID_INPUT)` for a cursor that is none."""
    start = _offset(cursor)
    row = {"status": status.strip().lower(), "most": limit + 1, "start": start}
    async with store.transaction() as connection:
        found = (await connection.execute(_PAGE, row)).all()
    shown: Json = {"runs": [_snapshot(each) for each in found[:limit]]}
    if len(found) > limit:
        shown["nextCursor"] = str(start + limit)
    return shown


async def recall(store: Store, run_id: str) -> Json | None:
    """The snapshot of a run of which only its record is left."""
    async with store.transaction() as connection:
        row = (await connection.execute(_ONE, {"run_id": run_id})).one_or_none()
    return _snapshot(row) if row is not None else None


def lines(snapshot: Json) -> list[Json]:
    """What is left of its log."""
    status = snapshot["status"]
    begun = {"timestamp": snapshot["startedAt"], "level": "info", "message": "workflow started"}
    if "endedAt" not in snapshot:
        return [begun]
    level = "error" if status == "failed" else "info"
    return [begun, {"timestamp": snapshot["endedAt"], "level": level, "message": f"workflow {status}"}]


def _offset(cursor: str | None) -> int:
    if cursor is None or cursor == "":
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        details = {"validation_path": "input.cursor", "validation_rule": "cursor"}
        raise Fault(Kind.INVALID_INPUT, "cursor is not one of ours", details=details)
    return int(cursor)


def _snapshot(row: Row[Any]) -> Json:
    completed, total = row.completed_steps, row.total_steps
    if total is None:
        match = _PROGRESS.fullmatch(row.diff_summary)
        completed, total = (int(match[1]), int(match[2])) if match else (0, 0)
    shown: Json = {
        "runId": row.run_id,
        "workflowId": row.name,
        "correlationId": row.correlation_id,
        "status": row.status,
        "startedAt": row.started_at,
        "totalSteps": total,
        "completedSteps": completed,
        "cancelRequested": bool(row.cancel_requested) or row.status == "canceled",
    }
    if row.ended_at is not None:
        shown["endedAt"] = row.ended_at
    if row.error_code is not None:
        shown["lastError"] = {"code": row.error_code, "message": row.error_message or ""}
    return shown
