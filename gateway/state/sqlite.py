"""The one place that knows SQLite: how its files are made, opened and watched.

The gateway's own tables in one SQLite file, and word of every change by asking for it.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import URL, Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import Fault, Kind
from gateway.state import sqlite_driver
from gateway.state.migrations import migrate
from gateway.state.private_files import create_private

BUSY: Final = 10.0

"""Seconds to wait for another writer before giving up."""

_RETRY: Final = 0.01


def prepare_file(path: Path) -> None:
    """Make the file if need be, for its owner alone and in WAL mode; several processes may do so at once."""
    try:
        create_private(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        with closing(connect(path)) as connection:
            _enter_wal(connection)
    except OSError as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"{path.name} cannot be opened or written: "
            "its folder must exist, belong to the gateway's user and have room.",
        ) from exc
    except sqlite3.Error as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"{path.name} is not a database that can be opened and written: check its owner and its disk, "
            "or move it away and restore it from a backup.",
        ) from exc


def connect(path: Path) -> sqlite3.Connection:
    """A plain connection, for work on a thread of its own. Transactions are begun by hand."""
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous=NORMAL")
    # It mostly appends: what it wrote last is all that it needs at hand.
    connection.execute("PRAGMA cache_size=-1024")
    return connection


def _enter_wal(connection: sqlite3.Connection) -> None:
    # A change of journal mode does not wait for other connections whatever the timeout, so it is tried again.
    give_up = time.monotonic() + BUSY
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            break
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_RETRY)
    if mode != "wal":
        raise sqlite3.NotSupportedError("the file system has no shared memory for a write-ahead log")
    # A file that may only be read says so here, not at the first call.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def open_engine(path: Path, mode: Literal["read", "write"], connections: int = 1, cached: int = 2000) -> AsyncEngine:
    """An engine on a prepared file. A writing transaction takes the write lock when it begins, never halfway.

    `cached` is how many KiB of the file each connection comes to hold.
    """
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=BUSY,
        hide_parameters=True,
        connect_args={"timeout": BUSY, "isolation_level": None, "async_creator_fn": sqlite_driver.connection},
    )
    pragmas = ["PRAGMA foreign_keys=ON", "PRAGMA synchronous=NORMAL", f"PRAGMA cache_size=-{cached}"]
    if mode == "read":
        pragmas.append("PRAGMA query_only=ON")
    opening = "BEGIN IMMEDIATE" if mode == "write" else "BEGIN"

    def set_up(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(opening)

    event.listen(engine.sync_engine, "connect", set_up)
    event.listen(engine.sync_engine, "begin", begin)
    return engine


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection, None]:
    """Committed when the block ends, rolled back when it raises; `Fault(UNAVAILABLE)` when it cannot begin."""
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(engine.begin())
        except (OperationalError, PoolTimeoutError) as exc:
            raise Fault(Kind.UNAVAILABLE, "The database is busy. Try again.", retry_after=1.0) from exc
        yield connection


class FileWatch:
    """Tells whether another connection, of this or another process, has committed since it was last asked.

    It may be asked on one thread and closed on another.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = connect(path)
        self._version = self._read()

    def moved(self) -> bool:
        with self._lock:
            before, self._version = self._version, self._read()
        return self._version != before

    def _read(self) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return version

    def close(self) -> None:
        with self._lock:
            self._connection.close()


_POLL: Final = 0.25

_WATCH_RETRY: Final = 1.0

_READERS: Final = 3

_CACHED: Final = 256

"""KiB: what is asked often is kept in memory as what it means, so that its pages need not be."""

_log = logging.getLogger(__name__)


class SqliteDatabase:
    """`gateway.state.database.Engine` on SQLite. Its statements name their tenants themselves."""

    def __init__(self, path: Path, watch: FileWatch) -> None:
        self._writer = open_engine(path, "write", cached=_CACHED)
        self._readers = open_engine(path, "read", _READERS, _CACHED)
        self._watch = watch

    @classmethod
    async def open(cls, path: Path) -> "SqliteDatabase":
        await asyncio.to_thread(prepare_file, path)
        return cls(path, await asyncio.to_thread(FileWatch, path))

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
                await asyncio.sleep(_WATCH_RETRY)
                continue
            if moved:
                told()

    async def close(self) -> None:
        self._watch.close()
        await self._readers.dispose()
        await self._writer.dispose()
