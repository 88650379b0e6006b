"""Every action that starts leaves a record in the tenant's log of runs; what is refused before leaves none."""

import itertools
import secrets
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Json, Store

_numbers = itertools.count(1)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

_START: Final = text(
    "INSERT INTO runs (run_id, correlation_id, type, name, status, started_at, worker)"
    " VALUES (:run_id, :correlation_id, :type, :name, 'running', :at, :worker)"
)
_END: Final = text(
    "UPDATE runs SET status = :status, ended_at = :at, diff_summary = :diff_summary, error_code = :error_code,"
    " error_message = :error_message WHERE run_id = :run_id"
)
_COLUMNS: Final = (
    "run_id, correlation_id, type, name, status, started_at, ended_at, diff_summary, error_code, error_message"
)
_ONE: Final = text(f"SELECT {_COLUMNS} FROM runs WHERE run_id = :run_id")  # noqa: S608  # only our own columns
_RECENT: Final = text(
    f"SELECT {_COLUMNS} FROM runs ORDER BY started_at DESC, run_id DESC LIMIT :most"  # noqa: S608
)
_PRUNE: Final = text("DELETE FROM runs WHERE status <> 'running' AND COALESCE(ended_at, started_at) < :before")
_WORKERS: Final = text("SELECT DISTINCT worker FROM runs WHERE status = 'running' AND type = 'action'")
_ORPHANS: Final = text(
    "UPDATE runs SET status = 'failed', ended_at = :at, error_code = 'INTERNAL_ERROR', error_message = :message"
    " WHERE status = 'running' AND type = 'action' AND worker = :worker"
)


def now() -> str:
    """RFC 3339 in UTC, to the nanosecond."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def ago(seconds: float) -> str:
    """What `now` said that long ago, to the second."""
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.000000000Z"


def new_run_id() -> str:
    """Eight hex digits, the time, and a counter in base 36."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{nanoseconds:09d}Z"
    return f"{secrets.token_hex(4)}-{stamp}-{_base36(next(_numbers))}"


async def start(store: Store, run_id: str, correlation_id: str, kind: str, name: str, worker: str) -> None:
    async with store.transaction() as connection:
        await start_in(connection, run_id, correlation_id, kind, name, worker)


async def start_in(
    connection: AsyncConnection, run_id: str, correlation_id: str, kind: str, name: str, worker: str
) -> str:
    """The same, as part of a larger transaction; when it was."""
    row = {"run_id": run_id, "correlation_id": correlation_id, "type": kind, "name": name, "worker": worker}
    started = now()
    await connection.execute(_START, {**row, "at": started})
    return started


async def end(
    store: Store,
    run_id: str,
    status: str,
    diff_summary: str = "",
    error_code: str | None = None,
    error_message: str | None = None,
) -> None:
    async with store.transaction() as connection:
        await end_in(connection, run_id, status, diff_summary, error_code, error_message)


async def end_in(
    connection: AsyncConnection,
    run_id: str,
    status: str,
    diff_summary: str = "",
    error_code: str | None = None,
    error_message: str | None = None,
) -> str:
    """The same, as part of a larger transaction; when it was."""
    ended = now()
    row = {
        "run_id": run_id,
        "status": status,
        "at": ended,
        "diff_summary": diff_summary,
        "error_code": error_code,
        "error_message": error_message,
    }
    await connection.execute(_END, row)
    return ended


async def find(store: Store, run_id: str) -> Json | None:
    async with store.transaction() as connection:
        row = (await connection.execute(_ONE, {"run_id": run_id})).one_or_none()
    return _shown(row) if row is not None else None


async def recent(store: Store, most: int = 100) -> list[Json]:
    """Newest first."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_RECENT, {"most": most})).all()
    return [_shown(row) for row in rows]


async def prune(store: Store, max_age: float) -> None:
    """Forget what ended longer ago; nothing that runs is forgotten."""
    async with store.transaction() as connection:
        await connection.execute(_PRUNE, {"before": ago(max_age)})


async def workers(store: Store) -> list[str]:
    """The workers whose actions are noted as running."""
    async with store.transaction() as connection:
        return list((await connection.execute(_WORKERS)).scalars())


async def end_orphans(store: Store, worker: str) -> None:
    """What ran on a worker that is gone has failed."""
    row = {"worker": worker, "at": now(), "message": "The gateway stopped while this ran."}
    async with store.transaction() as connection:
        await connection.execute(_ORPHANS, row)


def _shown(row: Row[Any]) -> Json:
    shown: Json = {
        "runId": row.run_id,
        "correlationId": row.correlation_id,
        "type": row.type,
        "name": row.name,
        "status": row.status,
        "startedAt": row.started_at,
        "diffSummary": row.diff_summary,
    }
    optional = {"endedAt": row.ended_at, "errorCode": row.error_code, "errorMessage": row.error_message}
    return shown | {key: value for key, value in optional.items() if value is not None}


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
