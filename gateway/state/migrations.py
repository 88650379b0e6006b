"""Numbered migrations: each is applied once, whole, in order, whoever comes first.

A folder holds `NNNN_name.sql` files. The table `migrations` keeps what was applied; a file once applied never changes.
"""

import asyncio
import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Migration:
    number: int
    name: str
    sql: str

    @property
    def title(self) -> str:
        return f"{self.number:04}_{self.name}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


async def migrate(connection: AsyncConnection, folder: Path) -> None:
    """Bring the database up to the folder's last migration, one transaction each.

    The connection's transactions must exclude each other from the start, as `open_engine(…, "write")` has them. Raises
    `Fault(ILLEGAL_STATE)` when the folder does not continue what was applied.
    """
    found = await asyncio.to_thread(_read, folder)
    try:
        await _continue(connection, found)
    except OperationalError as exc:
        raise Fault(Kind.UNAVAILABLE, "The database is busy. Try again.", retry_after=1.0) from exc


async def _continue(connection: AsyncConnection, found: list[_Migration]) -> None:
    async with connection.begin():
        await connection.execute(_CREATE)
        pending = _pending(found, await _applied(connection))
    for migration in pending:
        async with connection.begin():
            # Another process may have been faster since the list was made.
            if migration.number not in await _applied(connection):
                await _apply(connection, migration)


_CREATE: Final = text(
    "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
    " digest TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL)"
)


def _read(folder: Path) -> list[_Migration]:
    found: dict[int, _Migration] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise _broken(f"{path.name} is not named NNNN_name.sql.")
        migration = _Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
        if migration.number in found:
            raise _broken(f"{migration.title} has the number of {found[migration.number].title}.")
        found[migration.number] = migration
    return list(found.values())


async def _applied(connection: AsyncConnection) -> dict[int, tuple[str, str]]:
    rows = await connection.execute(text("SELECT number, name, digest FROM migrations"))
    return {number: (name, digest) for number, name, digest in rows}


def _pending(found: list[_Migration], applied: dict[int, tuple[str, str]]) -> list[_Migration]:
    by_number = {migration.number: migration for migration in found}
    for number, (name, digest) in applied.items():
        migration = by_number.get(number)
        if migration is None:
            raise _broken(f"{number:04}_{name} was applied and is missing: a newer version made this database.")
        if (migration.name, migration.digest) != (name, digest):
            raise _broken(f"{number:04}_{name} was applied and has changed since: {migration.title} is another.")
    pending = [migration for migration in found if migration.number not in applied]
    if applied and pending and pending[0].number < max(applied):
        raise _broken(f"{pending[0].title} comes before one already applied: give it the next free number.")
    return pending


async def _apply(connection: AsyncConnection, migration: _Migration) -> None:
    try:
        for statement in _statements(migration.sql):
            await connection.exec_driver_sql(statement)
    except SQLAlchemyError as exc:
        raise Fault(Kind.INTERNAL, f"Migration {migration.title} failed; nothing of it was kept.") from exc
    await connection.execute(
        text("INSERT INTO migrations (number, name, digest, applied_at) VALUES (:number, :name, :digest, :at)"),
        {"number": migration.number, "name": migration.name, "digest": migration.digest, "at": time.time()},
    )


def _statements(sql: str) -> Iterator[str]:
    # Drivers run one statement at a time inside a transaction; this lexer knows strings, comments and trigger bodies.
    start = 0
    for semicolon in re.finditer(";", sql):
        statement = sql[start : semicolon.end()]
        if sqlite3.complete_statement(statement):
            yield statement
            start = semicolon.end()
    if sql[start:].strip():
        yield sql[start:]


def _broken(message: str) -> Fault:
    return Fault(Kind.ILLEGAL_STATE, f"Migration {message}")
