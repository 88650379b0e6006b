"""Every action that starts leaves a record in the tenant's log of runs; what is refused before leaves none."""

import itertools
import secrets
from datetime import UTC, datetime
from time import time_ns
from typing import Final

from sqlalchemy import text

from gateway.contract import Store

_numbers = itertools.count(1)
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

_START: Final = text(
    "INSERT INTO runs (run_id, correlation_id, type, name, status, started_at)"
    " VALUES (:run_id, :correlation_id, :type, :name, 'running', :at)"
)
_END: Final = text(
    "UPDATE runs SET status = :status, ended_at = :at, diff_summary = :diff_summary, error_code = :error_code,"
    " error_message = :error_message WHERE run_id = :run_id"
)


def now() -> str:
    """RFC 3339 in UTC, to the nanosecond."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def new_run_id() -> str:
    """Eight hex digits, the time, and a counter in base 36."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{nanoseconds:09d}Z"
    return f"{secrets.token_hex(4)}-{stamp}-{_base36(next(_numbers))}"


async def start(store: Store, run_id: str, correlation_id: str, kind: str, name: str) -> None:
    row = {"run_id": run_id, "correlation_id": correlation_id, "type": kind, "name": name, "at": now()}
    async with store.transaction() as connection:
        await connection.execute(_START, row)


async def end(
    store: Store,
    run_id: str,
    status: str,
    diff_summary: str = "",
    error_code: str | None = None,
    error_message: str | None = None,
) -> None:
    row = {
        "run_id": run_id,
        "status": status,
        "at": now(),
        "diff_summary": diff_summary,
        "error_code": error_code,
        "error_message": error_message,
    }
    async with store.transaction() as connection:
        await connection.execute(_END, row)


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
