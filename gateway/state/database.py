"""The gateway's own database: one file, transactions, and word of every change whoever made it."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.migrations import migrate
from gateway.state.sqlite import Watch, open_engine, prepare_file, transaction

FILE: Final = "gatehouse.db"
MIGRATIONS: Final = Path(__file__).with_name("migrations")

_POLL: Final = 0.25
_RETRY: Final = 1.0
_READERS: Final = 3

_log = logging.getLogger(__name__)


class Database:
    """Open it with `Database.open`; what it hands out is portable SQL over a SQLAlchemy connection."""

    def __init__(self, path: Path, watch: Watch) -> None:
        self._writer = open_engine(path, "write")
        self._readers = open_engine(path, "read", _READERS)
        self._listeners: list[Callable[[], None]] = []
        self._tasks = [asyncio.create_task(self._poll(watch))]

    @classmethod
    async def open(cls, data_dir: Path) -> "Database":
        """Make or open the database in this folder and bring its tables up to date.

        Raises `Fault(UNAVAILABLE)` with what to do when the folder or file cannot be used.
        """
        path = data_dir / FILE
        await asyncio.to_thread(prepare_file, path)
        database = cls(path, await asyncio.to_thread(Watch, path))
        try:
            async with database._writer.connect() as connection:
                await migrate(connection, MIGRATIONS)
        except BaseException:
            await database.close()
            raise
        return database

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncConnection, None]:
        """One writing transaction at a time: committed when the block ends, rolled back when it raises."""
        async with transaction(self._writer) as connection:
            yield connection
        self._notify()

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """One consistent view for queries only; it neither waits for writers nor tells listeners."""
        return transaction(self._readers)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` at once after this object's own commits, within a second after anybody else's.

        It may be called without a change, and never says what changed.
        """
        self._listeners.append(listener)

    async def follow(self, load: Callable[[], Awaitable[None]]) -> None:
        """Run `load` now, and again after every change until the database is closed."""
        changed = asyncio.Event()
        self.on_change(changed.set)
        await load()
        self._tasks.append(asyncio.create_task(_keep_loading(changed, load)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._readers.dispose()
        await self._writer.dispose()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # one listener's defect must not hide the change from the others
                _log.exception("a listener to database changes failed")

    async def _poll(self, watch: Watch) -> None:
        try:
            while True:
                await asyncio.sleep(_POLL)
                try:
                    moved = await asyncio.to_thread(watch.moved)
                except sqlite3.Error:
                    _log.warning("the database could not be asked for changes; it is asked again", exc_info=True)
                    await asyncio.sleep(_RETRY)
                    continue
                if moved:
                    self._notify()
        finally:
            watch.close()


async def _keep_loading(changed: asyncio.Event, load: Callable[[], Awaitable[None]]) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            await _whole(load())
        except Exception:  # the refresh must outlive whatever one reading met
            _log.exception("a change in the database could not be read; it is tried again")
            await asyncio.sleep(_RETRY)
            changed.set()


async def _whole(work: Awaitable[None]) -> None:
    """Not cut off halfway by the end: a query without its asker would outlive the loop."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
