"""The gateway's own database: transactions, and notifications of the rows that any process changed.

`BatchRead` combines simultaneous lookups into one query.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.state.changes import Change, ChangeListener, ChangeListeners, Keys, Table, merge_keys
from gateway.state.sqlite import SqliteDatabase

FILE: Final = "gatehouse.db"
MIGRATIONS: Final = Path(__file__).with_name("migrations")
MAX_BATCH_IDS: Final = 500
"""Maximum number of ids in one `BatchRead` query."""
_MAX_KEYS: Final = 500
"""Maximum number of keys in one reload. Above it, the whole table is loaded."""
_RETRY_SECONDS: Final = 1.0
Load = Callable[[Keys], Awaitable[None]]
"""Reads the rows with these keys, or the whole table."""
T = TypeVar("T")

_log = logging.getLogger(__name__)


class DatabaseEngine(Protocol):
    """The operations in which SQLite and PostgreSQL differ. A tenant of None gives access to all tenants' rows."""

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]: ...

    async def upgrade(self, folder: Path) -> list[str]:
        """Apply the folder's pending migrations and return their titles."""
        ...

    async def watch(self, on_change: Callable[[Sequence[Change] | None], None]) -> None:
        """Call `on_change` within a second of each change by any process, until cancelled.

        It is called with None when changes may have been missed.
        """
        ...

    async def close(self) -> None: ...


class Database:
    """The gateway's tables. Open it with `Database.open`; run portable SQL on the SQLAlchemy connections it yields."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine
        self._listeners = ChangeListeners()
        self._tasks = [asyncio.create_task(engine.watch(self._listeners.publish))]
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

    def transaction(self, tenant: str | None = None) -> AbstractAsyncContextManager[AsyncConnection]:
        """Run a write transaction: commit when the block ends, roll back when it raises. Writers run one at a time.

        With `tenant`, PostgreSQL restricts the transaction to that tenant's rows.
        """
        return self._engine.writing(tenant)

    def reading(self, tenant: str | None = None) -> AbstractAsyncContextManager[AsyncConnection]:
        """Run a read-only transaction on a consistent snapshot. It does not wait for writers or notify listeners."""
        return self._engine.reading(tenant)

    def on_change(self, table: Table, listener: ChangeListener) -> None:
        """Call `listener` with the keys of changed rows within a second of a commit by any process, also this one.

        It may also be called without a change, and with None when changes may have been missed.
        """
        self._listeners.add(table, listener)

    async def follow(self, table: Table, load: Load) -> None:
        """Run `load(None)` now, and `load` with the keys of changed rows after each change, until closed."""
        reload = _Reload(load)
        self.on_change(table, reload.request)
        await load(None)
        self._tasks.append(asyncio.create_task(reload.run()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.close()


async def _open_postgres(url: str) -> DatabaseEngine:
    # asyncpg is an optional extra and slow to import.
    from gateway.state.postgres import PostgresDatabase

    return await PostgresDatabase.open(url)


class _Reload:
    """Runs `load` for requested keys, one run at a time. A failed run is repeated."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._keys: Keys = frozenset()
        self._requested = asyncio.Event()

    def request(self, keys: Keys) -> None:
        self._keys = merge_keys(self._keys, keys)
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            keys, self._keys = self._keys, frozenset()
            try:
                await _run_to_completion(self._load(None if keys is None or len(keys) > _MAX_KEYS else keys))
            except Exception:  # the reload task must survive a failed load
                _log.exception("database: reload after a change failed; retry in %g s", _RETRY_SECONDS)
                self.request(keys)
                await asyncio.sleep(_RETRY_SECONDS)


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
