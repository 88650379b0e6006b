"""The gateway's own database: transactions, and notifications of changes made by any process.

`BatchRead` combines simultaneous lookups into one query.
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
MAX_BATCH_IDS: Final = 500
"""Maximum number of ids in one `BatchRead` query."""
_RETRY_SECONDS: Final = 1.0
T = TypeVar("T")

_log = logging.getLogger(__name__)


class DatabaseEngine(Protocol):
    """The operations in which SQLite and PostgreSQL differ. A tenant of None gives access to all tenants' rows."""

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    async def upgrade(self, folder: Path) -> list[str]:
        """Apply the folder's pending migrations and return their titles."""
        ...

    async def watch(self, on_commit: Callable[[], None]) -> None:
        """Call `on_commit` within a second of each commit by any process, until cancelled."""
        ...

    async def close(self) -> None: ...


class Database:
    """The gateway's tables. Open it with `Database.open`; run portable SQL on the SQLAlchemy connections it yields."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine
        self._listeners: list[Callable[[], None]] = []
        self._tasks = [asyncio.create_task(engine.watch(self._notify))]
        self.applied_migrations: list[str] = []
        """Titles of the migrations that `open` applied."""

    @classmethod
    async def open(cls, data_dir: Path, url: str | None = None) -> "Database":
        """Open the PostgreSQL database at `url`, or open or create the file in `data_dir`, and migrate its tables.

        Raises `Fault(UNAVAILABLE)` when the database cannot be used. The message says what to do.
        """
        database = cls(await (SqliteDatabase.open(data_dir / FILE) if url is None else _open_postgres(url)))
        try:
            database.applied_migrations = await database._engine.upgrade(MIGRATIONS)
        except BaseException:
            await database.close()
            raise
        return database

    @asynccontextmanager
    async def transaction(self, tenant: str | None = None) -> AsyncGenerator[AsyncConnection, None]:
        """Run a write transaction: commit when the block ends, roll back when it raises. Writers run one at a time.

        With `tenant`, PostgreSQL restricts the transaction to that tenant's rows.
        """
        async with self._engine.writing(tenant) as connection:
            yield connection
        self._notify()

    def reading(self, tenant: str | None = None) -> AbstractAsyncContextManager[AsyncConnection]:
        """Run a read-only transaction on a consistent snapshot. It does not wait for writers or notify listeners."""
        return self._engine.reading(tenant)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` immediately after each commit of this object, and within a second after any other commit.

        It may also be called without a change.
        """
        self._listeners.append(listener)

    async def follow(self, load: Callable[[], Awaitable[None]]) -> None:
        """Run `load` now, and again after each change until the database is closed."""
        changed = asyncio.Event()
        self.on_change(changed.set)
        await load()
        self._tasks.append(asyncio.create_task(_reload_on_change(changed, load)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.close()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # a failing listener must not keep the others from being notified
                _log.exception("database: a change listener failed; the other listeners are notified")


async def _open_postgres(url: str) -> DatabaseEngine:
    # asyncpg is an optional extra and slow to import.
    from gateway.state.postgres import PostgresDatabase

    return await PostgresDatabase.open(url)


async def _reload_on_change(changed: asyncio.Event, load: Callable[[], Awaitable[None]]) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            await _run_to_completion(load())
        except Exception:  # the reload task must survive a failed load
            _log.exception("database: reload after a change failed; retry in %g s", _RETRY_SECONDS)
            await asyncio.sleep(_RETRY_SECONDS)
            changed.set()


async def _run_to_completion(work: Awaitable[None]) -> None:
    """Wait for `work` to finish even when cancelled: an abandoned query could outlive the event loop."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


class BatchRead(Generic[T]):
    """Combines simultaneous lookups by id into one query.

    The result of `get` always comes from a `find` query that started after the call to `get`.
    """

    def __init__(self, find: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._find = find
        self._waiting: dict[str, asyncio.Future[T | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, id: str) -> T | None:
        """Return the row, or None when it does not exist. Raises the exception that `find` raised."""
        if (answer := self._waiting.get(id)) is None:
            answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run_queries())
        # The future is shared: a cancelled caller must not cancel it for the others.
        return await asyncio.shield(answer)

    async def _run_queries(self) -> None:
        try:
            while self._waiting:
                batch = {id: self._waiting.pop(id) for id in list(self._waiting)[:MAX_BATCH_IDS]}
                try:
                    found = await self._find(list(batch))
                except Exception as exc:  # passed on to the callers; the next batch may succeed
                    for answer in batch.values():
                        answer.set_exception(exc)
                        answer.exception()  # mark as retrieved: all callers may have been cancelled
                else:
                    for id, answer in batch.items():
                        answer.set_result(found.get(id))
        finally:
            self._task = None
