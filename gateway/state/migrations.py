"""Numbered migrations: each is applied once, whole, in order, whoever comes first.

A folder holds `NNNN_name.sql` files, read by SQLite and PostgreSQL alike, or one file for each engine:
`NNNN_name.sqlite.sql` and `NNNN_name.postgres.sql`. The table `migrations` keeps what was applied; a file once applied
never changes. What a portable file may contain is said in docs/backends.md.
"""

import asyncio
import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import Fault, Kind

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)(?:\.(sqlite|postgres))?\.sql", re.ASCII)


class MigrationDialect(Protocol):
    """What an engine does in its own way."""

    @property
    def suffix(self) -> str:
        """The word in the names of files that are for this engine only."""
        ...

    async def lock(self, connection: AsyncConnection) -> None:
        """Called first in each transaction: until its end no other process migrates the same tables."""
        ...

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        """Several statements, as a file has them."""
        ...

    async def adopt(self, connection: AsyncConnection) -> None:
        """Called last in each transaction: what must hold for every table, also for those just made."""
        ...


class SqliteMigrations:
    """Its transactions exclude each other from the start, as `open_engine(…, "write")` has them."""

    suffix = "sqlite"

    async def lock(self, connection: AsyncConnection) -> None:
        """Had already."""

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        for statement in _statements(sql):
            await connection.exec_driver_sql(statement)

    async def adopt(self, connection: AsyncConnection) -> None:
        """A file belongs to one tenant, or to the house."""


SQLITE: Final = SqliteMigrations()


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


async def migrate(connection: AsyncConnection, folder: Path, dialect: MigrationDialect = SQLITE) -> list[str]:
    """Bring the tables up to the folder's last migration, one transaction each; the titles of those applied now.

    Raises `Fault(ILLEGAL_STATE)` when the folder does not continue what was applied.
    """
    found = await asyncio.to_thread(_read, folder, dialect.suffix)
    try:
        return await _continue(connection, found, dialect)
    except OperationalError as exc:
        raise Fault(Kind.UNAVAILABLE, "The database is busy. Try again.", retry_after=1.0) from exc


def pending(folder: Path, suffix: str, applied: dict[int, tuple[str, str]]) -> list[str]:
    """What `migrate` would apply where these, by number with name and digest, already are. Raises as it does."""
    return [migration.title for migration in _pending(_read(folder, suffix), applied)]


async def _continue(connection: AsyncConnection, found: list[_Migration], dialect: MigrationDialect) -> list[str]:
    done: list[str] = []
    async with connection.begin():
        await dialect.lock(connection)
        await connection.execute(_CREATE)
        wanted = _pending(found, await _applied(connection))
    for migration in wanted:
        async with connection.begin():
            await dialect.lock(connection)
            # Another process may have been faster since the list was made.
            if migration.number not in await _applied(connection):
                await _apply(connection, migration, dialect)
                done.append(migration.title)
    return done


_CREATE: Final = text(
    "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
    " digest TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL)"
)


def _read(folder: Path, suffix: str) -> list[_Migration]:
    found: dict[int, _Migration] = {}
    names: dict[int, str] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise _broken(f"{path.name} is not named NNNN_name.sql.")
        migration = _Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
        mine = match[3] in (None, suffix)
        if migration.name != names.setdefault(migration.number, migration.name) or (mine and migration.number in found):
            raise _broken(f"{migration.title} has the number of {migration.number:04}_{names[migration.number]}.")
        if mine:
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
    wanted = [migration for migration in found if migration.number not in applied]
    if applied and wanted and wanted[0].number < max(applied):
        raise _broken(f"{wanted[0].title} comes before one already applied: give it the next free number.")
    return wanted


async def _apply(connection: AsyncConnection, migration: _Migration, dialect: MigrationDialect) -> None:
    try:
        await dialect.run(connection, migration.sql)
        await dialect.adopt(connection)
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
