"""A look at the gateway's own database that changes nothing in it: no table is made, none is brought up to date."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.state.database import FILE, MIGRATIONS
from gateway.state.migrations import pending

_APPLIED: Final = "SELECT number, name, digest FROM migrations"
_SEALED: Final = "SELECT kid, sealed FROM signing_keys WHERE retired_at IS NULL ORDER BY created_at DESC LIMIT 1"


class DatabaseUnusable(Exception):
    """Why it cannot be used, in a line."""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What was seen."""

    pending: Sequence[str] = ()
    """Migrations that the next start applies."""
    sealed: tuple[str, str] | None = None
    """Id of the signing key in use, and the key as it is kept."""
    ahead: float = 0.0
    """Seconds by which the server's clock is ahead of ours."""
    superuser: bool = False


def look_at_file(folder: Path) -> DatabaseState | None:
    """The SQLite file of that data folder; None where there is none yet. Raises `Unusable`, or `Fault` for its age."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
            if (said := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise DatabaseUnusable(f"it is damaged: {said}")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            rows = connection.execute(_APPLIED).fetchall() if "migrations" in tables else []
            found = connection.execute(_SEALED).fetchone() if "signing_keys" in tables else None
    except sqlite3.Error as exc:
        raise DatabaseUnusable(f"it cannot be read: {exc}") from exc
    return DatabaseState(pending(MIGRATIONS, "sqlite", _by_number(rows)), found)


async def look_at_server(url: str) -> DatabaseState:
    """The PostgreSQL database at that address. Raises `Unusable`, or `Fault` for its age."""
    # asyncpg is an extra, and takes time to load.
    from gateway.state.postgres import FAILURES, plain_connection

    try:
        connection = await plain_connection(url)
        try:
            now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
            ahead = now - time.time()
            superuser = await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            rows = await _rows(connection, "migrations", _APPLIED)
            found = await _rows(connection, "signing_keys", _SEALED)
        finally:
            await connection.close(timeout=5)
    except FAILURES as exc:
        raise DatabaseUnusable(f"{type(exc).__name__}: {' '.join(str(exc).split())}".rstrip(": ")) from exc
    sealed = (found[0]["kid"], found[0]["sealed"]) if found else None
    return DatabaseState(pending(MIGRATIONS, "postgres", _by_number(rows)), sealed, ahead, superuser)


async def look_at_bus(url: str) -> float:
    """Seconds by which the clock of the Redis at that address is ahead of ours. Raises `Unusable`."""
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
