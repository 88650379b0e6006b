"""Lists a tenant's workflow runs, newest first, including pruned runs that remain only in the run log."""

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
    " AND (:at = '' OR r.started_at < :at OR (r.started_at = :at AND r.run_id < :run_id))"
    " ORDER BY r.started_at DESC, r.run_id DESC LIMIT :limit"
)
_CURSOR: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z)~([\w.-]{1,100})", re.ASCII)
_PROGRESS: Final = re.compile(r"steps=(\d+)/(\d+)")


async def read_page(store: Store, status: str, limit: int, cursor: str | None) -> Json:
    """Return one page of snapshots. Raises `Fault(INVALID_INPUT)` for an invalid cursor."""
    at, run_id = _parse_cursor(cursor)
    row = {"status": status.strip().lower(), "limit": limit + 1, "at": at, "run_id": run_id}
    async with store.transaction() as connection:
        found = (await connection.execute(_PAGE, row)).all()
    shown: Json = {"runs": [_to_snapshot(each) for each in found[:limit]]}
    if len(found) > limit:
        # The last row shown, not an offset: runs that start meanwhile do not move the next page.
        shown["nextCursor"] = f"{found[limit - 1].started_at}~{found[limit - 1].run_id}"
    return shown


async def find_record(store: Store, run_id: str) -> Json | None:
    """Return the snapshot of a run from its run-log record, or None if there is no record."""
    async with store.transaction() as connection:
        row = (await connection.execute(_ONE, {"run_id": run_id})).one_or_none()
    return _to_snapshot(row) if row is not None else None


def summary_log(snapshot: Json) -> list[Json]:
    """Return log lines for a pruned run, derived from its snapshot."""
    status = snapshot["status"]
    started = {"timestamp": snapshot["startedAt"], "level": "info", "message": "workflow started"}
    if "endedAt" not in snapshot:
        return [started]
    level = "error" if status == "failed" else "info"
    return [started, {"timestamp": snapshot["endedAt"], "level": level, "message": f"workflow {status}"}]


def _parse_cursor(cursor: str | None) -> tuple[str, str]:
    if cursor is None or cursor == "":
        return "", ""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        details = {"validation_path": "input.cursor", "validation_rule": "cursor"}
        raise Fault(Kind.INVALID_INPUT, "cursor is invalid: use the nextCursor of the previous page", details=details)
    return found[1], found[2]


def _to_snapshot(row: Row[Any]) -> Json:
    completed, total = row.completed_steps, row.total_steps
    if total is None:
        match = _PROGRESS.fullmatch(row.diff_summary)
        completed, total = (int(match[1]), int(match[2])) if match else (0, 0)
    snapshot: Json = {
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
        snapshot["endedAt"] = row.ended_at
    if row.error_code is not None:
        snapshot["lastError"] = {"code": row.error_code, "message": row.error_message or ""}
    return snapshot
