"""Async SQLite driver for SQLAlchemy with one thread round trip per statement.

`aiosqlite` needs four (cursor, execute, fetch, close), and a round trip costs more than most statements.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import aiosqlite


def connect(database: str, **options: Any) -> "SqliteConnection":
    """Return an awaitable connection. Replaces `aiosqlite.connect` in SQLAlchemy."""
    return SqliteConnection(database, options)


class SqliteConnection(aiosqlite.Connection):
    """An `aiosqlite` connection whose cursors fetch all rows on execute and hold no statement open."""

    def __init__(self, database: str, options: dict[str, Any]) -> None:
        super().__init__(lambda: sqlite3.connect(database, **options), iter_chunk_size=64)
        self._thread.daemon = True
        self._idle = True
        """Whether no statement is running, including one whose caller was cancelled."""

    def cursor(self) -> Any:
        return SqliteCursor(self)

    async def rollback(self) -> None:
        # The pool rolls back each returned connection. Skip the round trip when there is nothing to roll back.
        if self._conn.in_transaction or not self._idle:
            await super().rollback()
            self._idle = True

    async def run(self, cursor: "SqliteCursor", method: "ExecuteMethod", sql: str, parameters: Sequence[Any]) -> None:
        self._idle = False
        await self._execute(cursor.run, self._conn, method, sql, parameters)  # pyright: ignore[reportUnknownMemberType]
        self._idle = True


ExecuteMethod = Literal["execute", "executemany"]


class SqliteCursor:
    """The cursor methods that SQLAlchemy uses."""

    arraysize = 1

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
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
        """Do nothing: `run` closes the underlying cursor."""

    def run(self, connection: sqlite3.Connection, method: ExecuteMethod, sql: str, parameters: Sequence[Any]) -> None:
        """Execute the statement and fetch its rows. Runs on the connection's thread."""
        cursor = connection.cursor()
        try:
            getattr(cursor, method)(sql, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if cursor.description else []
            self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid
        finally:
            cursor.close()
