"""The gateway's own tables in one SQLite file, and word of every change by asking for it."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.migrations import migrate
from gateway.state.sqlite import Watch, open_engine, prepare_file, transaction

_POLL: Final = 0.25
_RETRY: Final = 1.0
_READERS: Final = 3
_CACHED: Final = 256
"""KiB: what is asked often is kept in memory as what it means, so that its pages need not be."""

_log = logging.getLogger(__name__)


class Embedded:
    """`gateway.state.database.Engine` on SQLite. Its statements name their tenants themselves."""

    def __init__(self, path: Path, watch: Watch) -> None:
        self._writer = open_engine(path, "write", cached=_CACHED)
        self._readers = open_engine(path, "read", _READERS, _CACHED)
        self._watch = watch

    @classmethod
    async def open(cls, path: Path) -> "Embedded":
        await asyncio.to_thread(prepare_file, path)
        return cls(path, await asyncio.to_thread(Watch, path))

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return transaction(self._writer)

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return transaction(self._readers)

    async def upgrade(self, folder: Path) -> list[str]:
        async with self._writer.connect() as connection:
            return await migrate(connection, folder)

    async def watch(self, told: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(_POLL)
            try:
                moved = await asyncio.to_thread(self._watch.moved)
            except sqlite3.Error:
                _log.warning("the database could not be asked for changes; it is asked again", exc_info=True)
                await asyncio.sleep(_RETRY)
                continue
            if moved:
                told()

    async def close(self) -> None:
        self._watch.close()
        await self._readers.dispose()
        await self._writer.dispose()
