"""Read-only inspection of the database and the bus, for `gatehouse doctor`. It creates and migrates no table."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from gateway.state.database import FILE, MIGRATIONS
from gateway.state.migrations import pending

_SELECT_APPLIED: Final = "SELECT number, name, digest FROM migrations"
_SELECT_SIGNING_KEY: Final = (
    "SELECT kid, sealed FROM signing_keys WHERE retired_at IS NULL ORDER BY created_at DESC LIMIT 1"
)


class DatabaseUnusable(Exception):
    """The database or bus cannot be used. The message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Result of an inspection."""

    pending: Sequence[str] = ()
    """Titles of the migrations that the next start applies."""
    signing_key: tuple[str, str] | None = None
    """Id of the current signing key, and the sealed key."""
    clock_offset: float = 0.0
    """Seconds by which the server's clock is ahead of this machine's."""
    is_superuser: bool = False


def inspect_file(folder: Path) -> DatabaseState | None:
    """Inspect the SQLite file in a data folder. Returns None when there is none yet.

    Raises `DatabaseUnusable`, or `Fault` when its migrations do not match this version.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
            if (result := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise DatabaseUnusable(f"it is damaged: {result}")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            rows = connection.execute(_SELECT_APPLIED).fetchall() if "migrations" in tables else []
            signing_key = connection.execute(_SELECT_SIGNING_KEY).fetchone() if "signing_keys" in tables else None
    except sqlite3.Error as exc:
        raise DatabaseUnusable(f"it cannot be read: {exc}") from exc
    return DatabaseState(pending(MIGRATIONS, "sqlite", _by_number(rows)), signing_key)


async def inspect_server(url: str) -> DatabaseState:
    """Inspect the PostgreSQL database at `url`.

    Raises `DatabaseUnusable`, or `Fault` when its migrations do not match this version.
    """
    # asyncpg is an optional extra and slow to import.
    from gateway.state.postgres import FAILURES, open_connection

    try:
        connection = await open_connection(url)
        try:
            now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
            clock_offset = now - time.time()
            is_superuser = await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            rows = await _rows(connection, "migrations", _SELECT_APPLIED)
            keys = await _rows(connection, "signing_keys", _SELECT_SIGNING_KEY)
        finally:
            await connection.close(timeout=5)
    except FAILURES as exc:
        raise DatabaseUnusable(f"{type(exc).__name__}: {' '.join(str(exc).split())}".rstrip(": ")) from exc
    signing_key = (keys[0]["kid"], keys[0]["sealed"]) if keys else None
    return DatabaseState(pending(MIGRATIONS, "postgres", _by_number(rows)), signing_key, clock_offset, is_superuser)


async def bus_clock_offset(url: str) -> float:
    """Return the seconds by which the Redis server's clock is ahead of this machine's. Raises `DatabaseUnusable`."""
    from gateway.state.redis_connection import FAILURES, server_time

    try:
        return await server_time(url) - time.time()
    except FAILURES as exc:
        raise DatabaseUnusable(f"{type(exc).__name__}: {' '.join(str(exc).split())}".rstrip(": ")) from exc


async def _rows(connection: Any, table: str, query: str) -> list[Any]:
    if await connection.fetchval("SELECT to_regclass($1)", f"gatehouse.{table}") is None:
        return []
    return await connection.fetch(query.replace(f"FROM {table}", f"FROM gatehouse.{table}"))


def _by_number(rows: Sequence[Any]) -> dict[int, tuple[str, str]]:
    return {number: (name, digest) for number, name, digest in map(tuple, rows)}


def read_stored_lists(folder: Path, isolation_key: str) -> dict[str, tuple[str, str]]:
    """The origin and the encoded lists of each backend in the SQLite file of a data folder; empty without a file."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            rows = connection.execute(
                "SELECT namespace, origin, lists FROM catalogue_snapshots WHERE whose = ?", (isolation_key,)
            ).fetchall()
    except sqlite3.Error:
        return {}
    return {namespace: (origin, lists) for namespace, origin, lists in rows}
