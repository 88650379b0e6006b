"""An audit log of the test's own on either engine, and what an intruder with the database in hand may do to it."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.state.audit import FILE, AuditLog, AuditTableWriter, open_ledger

_PLACE = "SET search_path = gatehouse_audit"


@dataclass(frozen=True)
class Kept:
    folder: Path
    url: str | None

    async def log(self, **more: Any) -> AuditLog:
        return await AuditLog.open(self.folder, url=self.url, **more)

    def ledger(self) -> AuditTableWriter:
        """Not within a running loop."""
        return asyncio.run(open_ledger(self.folder, self.url))

    async def rows(self, sql: str = "SELECT correlation_id FROM audit ORDER BY at") -> list[tuple[Any, ...]]:
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE)) as connection:
                return connection.execute(sql).fetchall()
        async with self._connected() as connection:
            return [tuple(row) for row in await connection.fetch(sql)]

    async def change(self, sql: str) -> None:
        """Anything, and it must find something to change."""
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE)) as connection, connection:
                assert connection.execute(sql).rowcount != 0
            return
        async with self._connected() as connection:
            assert not (await connection.execute(sql)).endswith(" 0")

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Nobody else can write."""
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE, isolation_level=None)) as blocker:
                blocker.execute("BEGIN IMMEDIATE")
                yield
                blocker.execute("ROLLBACK")
            return
        async with self._connected() as connection, connection.transaction():
            await connection.execute("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            yield

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Any]:
        import asyncpg

        # A superuser's: it sees every row, whatever the policies say.
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(_PLACE)
            yield connection
        finally:
            await connection.close()
