"""The gateway's own tables on PostgreSQL, and word of every change by LISTEN and NOTIFY."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.migrations import migrate
from gateway.state.postgres import EVERYONE, Postgres, PostgresDialect, lock_number

SCHEMA: Final = "gatehouse"

_CONNECTIONS: Final = 4
_HEARTBEAT: Final = 2.0
_RETRY: Final = (0.1, 0.5, 1.0, 2.0)

_log = logging.getLogger(__name__)

_READ: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true)"
)
# Told at the commit and never after a roll-back; one writer at a time, as it is on SQLite.
_WRITE: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true),"
    " pg_advisory_xact_lock(:lock), pg_notify('gatehouse', '')"
)


class PostgresHouse:
    """`gateway.state.database.Engine` on PostgreSQL."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    @classmethod
    async def open(cls, dsn: str) -> "PostgresHouse":
        return cls(await Postgres.open(dsn, _CONNECTIONS))

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._server.transaction(_WRITE, {"tenant": tenant or EVERYONE, "lock": lock_number("write", SCHEMA)})

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._server.transaction(_READ, {"tenant": tenant or EVERYONE}, read_only=True)

    async def upgrade(self, folder: Path) -> list[str]:
        async with self._server.engine.connect() as connection:
            return await migrate(connection, folder, PostgresDialect(SCHEMA, shared=True))

    async def watch(self, told: Callable[[], None]) -> None:
        tries = 0
        while True:
            try:
                tries = 0 if await self._listen(told) else tries
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                _log.warning("the database does not tell of its changes; it is asked again", exc_info=tries == 0)
            await asyncio.sleep(_RETRY[min(tries, len(_RETRY) - 1)])
            tries += 1

    async def _listen(self, told: Callable[[], None]) -> bool:
        connection = await self._server.connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _connection: lost.set())  # pyright: ignore[reportUnknownLambdaType]
            await connection.add_listener("gatehouse", lambda *_about: told())  # pyright: ignore[reportUnknownLambdaType]
            # Whatever was committed while nobody listened.
            told()
            while not lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), _HEARTBEAT)
                if not lost.is_set():
                    # A connection that is cut off somewhere on the way says nothing, for ever.
                    await connection.fetchval("SELECT 1", timeout=_HEARTBEAT)
            return True
        finally:
            connection.terminate()

    async def close(self) -> None:
        await self._server.close()
