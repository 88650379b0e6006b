"""An audit log for tests on either database, with direct access to its tables to tamper with them."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.state.audit import FILE, AuditLog, AuditTables, open_audit_tables
from gateway.state.audit_chain import AuditKey

SECRET = bytes(32)
KEY = AuditKey(SECRET)
_SET_SEARCH_PATH = "SET search_path = gatehouse_audit"


@dataclass(frozen=True)
class AuditStorage:
    folder: Path
    url: str | None

    async def open_log(self, **options: Any) -> AuditLog:
        return await AuditLog.open(self.folder, SECRET, url=self.url, **options)

    def open_tables(self) -> AuditTables:
        """Open the tables. Call it outside a running event loop."""
        return asyncio.run(open_audit_tables(self.folder, KEY, self.url))

    async def query(self, sql: str = "SELECT correlation_id FROM audit ORDER BY at") -> list[tuple[Any, ...]]:
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE)) as connection:
                return connection.execute(sql).fetchall()
        async with self._connect() as connection:
            return [tuple(row) for row in await connection.fetch(sql)]

    async def execute(self, sql: str) -> None:
        """Run a statement and check that it changed something."""
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE)) as connection, connection:
                assert connection.execute(sql).rowcount != 0
            return
        async with self._connect() as connection:
            assert not (await connection.execute(sql)).endswith(" 0")

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Lock the tables against other writers."""
        if self.url is None:
            with closing(sqlite3.connect(self.folder / FILE, isolation_level=None)) as blocker:
                blocker.execute("BEGIN IMMEDIATE")
                yield
                blocker.execute("ROLLBACK")
            return
        async with self._connect() as connection, connection.transaction():
            await connection.execute("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            yield

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any]:
        import asyncpg

        # The login is a superuser, so row-level security does not apply.
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(_SET_SEARCH_PATH)
            yield connection
        finally:
            await connection.close()
