"""The run log of a tenant: one record for each action or workflow run that starts.

Calls that are rejected before they start leave no record.
"""

import itertools
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Final, Literal

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Json, Store

_run_counter = itertools.count(1)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

_START: Final = text(
    "INSERT INTO runs (run_id, correlation_id, type, name, status, started_at, worker, principal, actor)"
    " VALUES (:run_id, :correlation_id, :type, :name, 'running', :at, :worker, :principal, :actor)"
)
_END: Final = text(
    "UPDATE runs SET status = :status, ended_at = :at, diff_summary = :diff_summary, error_code = :error_code,"
    " error_message = :error_message WHERE run_id = :run_id"
)
_COLUMNS: Final = (
    "run_id, correlation_id, type, name, status, started_at, ended_at, diff_summary, error_code, error_message,"
    " principal, actor"
)
_ONE: Final = text(f"SELECT {_COLUMNS} FROM runs WHERE run_id = :run_id")  # noqa: S608  # only our own columns
_RECENT: Final = text(
    f"SELECT {_COLUMNS} FROM runs ORDER BY started_at DESC, run_id DESC LIMIT :limit"  # noqa: S608
)
_PRUNE: Final = text("DELETE FROM runs WHERE status <> 'running' AND COALESCE(ended_at, started_at) < :before")
_WORKERS: Final = text("SELECT DISTINCT worker FROM runs WHERE status = 'running' AND type = 'action'")
_ORPHANS: Final = text(
    "UPDATE runs SET status = 'failed', ended_at = :at, error_code = 'INTERNAL_ERROR', error_message = :message"
    " WHERE status = 'running' AND type = 'action' AND worker = :worker"
)


def now() -> str:
    """Return the current time in RFC 3339 format, UTC, with nanoseconds."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def timestamp_before(seconds: float) -> str:
    """Return the time that many seconds ago, in the format of `now`, truncated to the second."""
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.000000000Z"


def new_run_id() -> str:
    """Return a run id: eight hex digits, the time, and a counter in base 36."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{nanoseconds:09d}Z"
    return f"{secrets.token_hex(4)}-{stamp}-{_base36(next(_run_counter))}"


@dataclass(frozen=True, slots=True)
class NewRun:
    """The record of a run that starts."""

    run_id: str
    correlation_id: str
    type: Literal["action", "workflow"]
    name: str
    worker: str
    principal: str
    """The verified caller; `actor` is what the client claims."""
    actor: str | None


async def start(store: Store, run: NewRun) -> None:
    async with store.transaction() as connection:
        await start_in_transaction(connection, run)


async def start_in_transaction(connection: AsyncConnection, run: NewRun) -> str:
    """Insert the record of a new run within an open transaction; return its start time."""
    row = asdict(run)
    started_at = now()
    await connection.execute(_START, {**row, "at": started_at})
    return started_at


async def end(
    store: Store,
    run_id: str,
    status: str,
    diff_summary: str = "",
    error_code: str | None = None,
    error_message: str | None = None,
) -> None:
    async with store.transaction() as connection:
        await end_in_transaction(connection, run_id, status, diff_summary, error_code, error_message)


async def end_in_transaction(
    connection: AsyncConnection,
    run_id: str,
    status: str,
    diff_summary: str = "",
    error_code: str | None = None,
    error_message: str | None = None,
) -> str:
    """Write the result of a run within an open transaction; return its end time."""
    ended_at = now()
    row = {
        "run_id": run_id,
        "status": status,
        "at": ended_at,
        "diff_summary": diff_summary,
        "error_code": error_code,
        "error_message": error_message,
    }
    await connection.execute(_END, row)
    return ended_at


async def find(store: Store, run_id: str) -> Json | None:
    async with store.transaction() as connection:
        row = (await connection.execute(_ONE, {"run_id": run_id})).one_or_none()
    return _to_json(row) if row is not None else None


async def recent(store: Store, limit: int = 100) -> list[Json]:
    """Return the latest records, newest first."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_RECENT, {"limit": limit})).all()
    return [_to_json(row) for row in rows]


async def prune(store: Store, max_age: float) -> None:
    """Delete records of runs that ended more than `max_age` seconds ago."""
    async with store.transaction() as connection:
        await connection.execute(_PRUNE, {"before": timestamp_before(max_age)})


async def list_active_workers(store: Store) -> list[str]:
    """Return the workers that have running actions."""
    async with store.transaction() as connection:
        return list((await connection.execute(_WORKERS)).scalars())


async def fail_runs_of_worker(store: Store, worker: str) -> None:
    """Mark the running actions of a dead worker as failed."""
    row = {"worker": worker, "at": now(), "message": "The gateway stopped while this ran."}
    async with store.transaction() as connection:
        await connection.execute(_ORPHANS, row)


def _to_json(row: Row[Any]) -> Json:
    record: Json = {
        "runId": row.run_id,
        "correlationId": row.correlation_id,
        "type": row.type,
        "name": row.name,
        "status": row.status,
        "startedAt": row.started_at,
        "diffSummary": row.diff_summary,
    }
    optional = {
        "endedAt": row.ended_at,
        "errorCode": row.error_code,
        "errorMessage": row.error_message,
        "principal": row.principal,
        "actor": row.actor,
    }
    return record | {key: value for key, value in optional.items() if value is not None}


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
