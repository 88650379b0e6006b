"""The gateway's own database: transactions, and word of every change whoever made it.

Rows that many look up at the same moment, read in one query: a crowd costs the database what one of them does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.sqlite import SqliteDatabase

FILE: Final = "gatehouse.db"

MIGRATIONS: Final = Path(__file__).with_name("migrations")

_RETRY: Final = 1.0

_log = logging.getLogger(__name__)


class DatabaseEngine(Protocol):
    """SQLite or PostgreSQL, as far as they differ. A tenant of None is the house itself: it sees every row."""

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    async def upgrade(self, folder: Path) -> list[str]:
        """Apply what is new in this folder; what that was."""
        ...

    async def watch(self, told: Callable[[], None]) -> None:
        """Call `told` within a second of anybody's commit, for ever."""
        ...

    async def close(self) -> None: ...


class Database:
    """Open it with `Database.open`; what it hands out is portable SQL over a SQLAlchemy connection."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine
        self._listeners: list[Callable[[], None]] = []
        self._tasks = [asyncio.create_task(engine.watch(self._notify))]
        self.upgraded: list[str] = []
        """The migrations that opening it applied."""

    @classmethod
    async def open(cls, data_dir: Path, url: str | None = None) -> "Database":
        """Open the PostgreSQL database at `url`, or make or open the file in this folder; bring its tables up to date.

        Raises `Fault(UNAVAILABLE)` with what to do when that cannot be.
        """
        database = cls(await (SqliteDatabase.open(data_dir / FILE) if url is None else _postgres(url)))
        try:
            database.upgraded = await database._engine.upgrade(MIGRATIONS)
        except BaseException:
            await database.close()
            raise
        return database

    @asynccontextmanager
    async def transaction(self, tenant: str | None = None) -> AsyncGenerator[AsyncConnection, None]:
        """One writing transaction at a time: committed when the block ends, rolled back when it raises.

        With a tenant named, PostgreSQL shows and takes no rows but that tenant's.
        """
        async with self._engine.writing(tenant) as connection:
            yield connection
        self._notify()

    def reading(self, tenant: str | None = None) -> AbstractAsyncContextManager[AsyncConnection]:
        """One consistent view for queries only; it neither waits for writers nor tells listeners."""
        return self._engine.reading(tenant)

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
        await self._engine.close()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # one listener's defect must not hide the change from the others
                _log.exception("a listener to database changes failed")


async def _postgres(url: str) -> DatabaseEngine:
    # asyncpg is an extra, and takes time to load.
    from gateway.state.postgres import PostgresDatabase

    return await PostgresDatabase.open(url)


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


T = TypeVar("T")

MOST: Final = 500

"""Ids in one query; PostgreSQL and SQLite take many more."""


class BatchRead(Generic[T]):
    """`await together.get(id)`: what `find` said of it in a query that began after it was asked for."""

    def __init__(self, find: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._find = find
        self._waiting: dict[str, asyncio.Future[T | None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def get(self, id: str) -> T | None:
        """None when there is none. Raises what `find` raised."""
        if (answer := self._waiting.get(id)) is None:
            answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        # Whoever gives up waiting does not take the answer from the others.
        return await asyncio.shield(answer)

    async def _look(self) -> None:
        try:
            while self._waiting:
                asked = {id: self._waiting.pop(id) for id in list(self._waiting)[:MOST]}
                try:
                    found = await self._find(list(asked))
                except Exception as exc:  # theirs to know; the next may fare better
                    for answer in asked.values():
                        answer.set_exception(exc)
                        answer.exception()  # looked at: everybody who waited for it may be gone
                else:
                    for id, answer in asked.items():
                        answer.set_result(found.get(id))
        finally:
            self._looking = None
