"""SQLite off the event loop, with one visit to its thread for each statement.

`aiosqlite` makes four (cursor, execute, fetch, close), and a visit costs more than most statements do.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import aiosqlite


def connection(database: str, **options: Any) -> "SqliteConnection":
    """For SQLAlchemy, in place of `aiosqlite.connect`; to be awaited."""
    return SqliteConnection(database, options)


class SqliteConnection(aiosqlite.Connection):
    """As its parent, but a cursor has all of its rows once it was executed, and holds no statement open."""

    def __init__(self, database: str, options: dict[str, Any]) -> None:
        super().__init__(lambda: sqlite3.connect(database, **options), iter_chunk_size=64)
        self._thread.daemon = True
        self._idle = True
        """No visit is under way, not even one that nobody awaits any more."""

    def cursor(self) -> Any:
        return SqliteCursor(self)

    async def rollback(self) -> None:
        # The pool asks for one whenever a connection comes back, and mostly there is nothing to take back.
        if self._conn.in_transaction or not self._idle:
            await super().rollback()
            self._idle = True

    async def run(self, cursor: "SqliteCursor", how: "How", sql: str, parameters: Sequence[Any]) -> None:
        self._idle = False
        await self._execute(cursor.run, self._conn, how, sql, parameters)  # pyright: ignore[reportUnknownMemberType]
        self._idle = True


How = Literal["execute", "executemany"]


class SqliteCursor:
    """What SQLAlchemy asks of one."""

    arraysize = 1

    def __init__(self, of: SqliteConnection) -> None:
        self._connection = of
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> "SqliteCursor":
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> "SqliteCursor":
        await self._connection.run(self, "execute", sql, parameters)
        return self

    async def executemany(self, sql: str, parameters: Sequence[Any]) -> "SqliteCursor":
        await self._connection.run(self, "executemany", sql, parameters)
        return self

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Done when it was executed."""

    def run(self, on: sqlite3.Connection, how: How, sql: str, parameters: Sequence[Any]) -> None:
        """On the connection's own thread."""
        cursor = on.cursor()
        try:
            getattr(cursor, how)(sql, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if cursor.description else []
            self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid
        finally:
            cursor.close()
