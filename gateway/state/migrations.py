"""Numbered SQL migrations. Each is applied once, in order and in one transaction, by the first process that reaches it.

A folder holds `NNNN_name.sql` files for both engines, or one file per engine: `NNNN_name.sqlite.sql` and
`NNNN_name.postgres.sql`. The table `migrations` records the applied files with their SHA-256: do not edit a file once
it is released. docs/backends.md describes the SQL that a portable file may contain.
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
    """The steps of a migration that differ between engines."""

    @property
    def suffix(self) -> str:
        """Marks files for this engine only: `NNNN_name.<suffix>.sql`."""
        ...

    async def lock(self, connection: AsyncConnection) -> None:
        """Keep other processes from migrating the same tables until the transaction ends. Called first in it."""
        ...

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        """Run all statements of a migration file."""
        ...

    async def secure_tables(self, connection: AsyncConnection) -> None:
        """Apply tenant isolation to new tables. Called last in each transaction."""
        ...


class SqliteMigrations:
    """Migrations on SQLite. Needs an engine from `open_engine(…, "write")`, whose transactions exclude each other."""

    suffix = "sqlite"

    async def lock(self, connection: AsyncConnection) -> None:
        """Do nothing: the transaction already holds the write lock."""

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        for statement in _statements(sql):
            await connection.exec_driver_sql(statement)

    async def secure_tables(self, connection: AsyncConnection) -> None:
        """Do nothing: a SQLite file belongs to one tenant, or to the gateway."""


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
    """Apply the folder's pending migrations, one transaction each, and return their titles.

    Raises `Fault(ILLEGAL_STATE)` when the folder does not match the migrations already applied.
    """
    found = await asyncio.to_thread(_read, folder, dialect.suffix)
    try:
        return await _apply_pending(connection, found, dialect)
    except OperationalError as exc:
        raise Fault(Kind.UNAVAILABLE, "The database is busy. Try again.", retry_after=1.0) from exc


def pending(folder: Path, suffix: str, applied: dict[int, tuple[str, str]]) -> list[str]:
    """Return the titles that `migrate` would apply, given the applied (name, digest) by number. Raises as it does."""
    return [migration.title for migration in _pending(_read(folder, suffix), applied)]


async def _apply_pending(connection: AsyncConnection, found: list[_Migration], dialect: MigrationDialect) -> list[str]:
    applied: list[str] = []
    async with connection.begin():
        await dialect.lock(connection)
        await connection.execute(_CREATE)
        unapplied = _pending(found, await _applied(connection))
    for migration in unapplied:
        async with connection.begin():
            await dialect.lock(connection)
            # Another process may have applied it since the list was read.
            if migration.number not in await _applied(connection):
                await _apply(connection, migration, dialect)
                applied.append(migration.title)
    return applied


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
            raise _invalid(f"{path.name} is not named NNNN_name.sql.")
        migration = _Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
        is_relevant = match[3] in (None, suffix)
        if migration.name != names.setdefault(migration.number, migration.name) or (
            is_relevant and migration.number in found
        ):
            raise _invalid(f"{migration.title} has the number of {migration.number:04}_{names[migration.number]}.")
        if is_relevant:
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
            raise _invalid(
                f"{number:04}_{name} was applied but its file is missing: a newer version created this database."
            )
        if (migration.name, migration.digest) != (name, digest):
            raise _invalid(
                f"{number:04}_{name} was applied but its file has changed: {migration.title} does not match."
            )
    unapplied = [migration for migration in found if migration.number not in applied]
    if applied and unapplied and unapplied[0].number < max(applied):
        raise _invalid(f"{unapplied[0].title} comes before a migration already applied: give it the next free number.")
    return unapplied


async def _apply(connection: AsyncConnection, migration: _Migration, dialect: MigrationDialect) -> None:
    try:
        await dialect.run(connection, migration.sql)
        await dialect.secure_tables(connection)
    except SQLAlchemyError as exc:
        raise Fault(Kind.INTERNAL, f"Migration {migration.title} failed and was rolled back.") from exc
    await connection.execute(
        text("INSERT INTO migrations (number, name, digest, applied_at) VALUES (:number, :name, :digest, :at)"),
        {"number": migration.number, "name": migration.name, "digest": migration.digest, "at": time.time()},
    )


def _statements(sql: str) -> Iterator[str]:
    # Drivers run one statement at a time. `complete_statement` recognizes strings, comments and trigger bodies.
    start = 0
    for semicolon in re.finditer(";", sql):
        statement = sql[start : semicolon.end()]
        if sqlite3.complete_statement(statement):
            yield statement
            start = semicolon.end()
    if sql[start:].strip():
        yield sql[start:]


def _invalid(message: str) -> Fault:
    return Fault(Kind.ILLEGAL_STATE, f"Migration {message}")
