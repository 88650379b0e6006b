"""SQLite: creating, opening and watching database files, and the gateway's own tables in one file.

Changes are detected by polling `PRAGMA data_version`; triggers record the changed rows in the table `changes`.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
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
from gateway.state.changes import Change
from gateway.state.migrations import migrate
from gateway.state.private_files import create_private

BUSY_TIMEOUT: Final = 10.0
"""Maximum seconds to wait for another writer."""
_WAL_RETRY_SECONDS: Final = 0.01
_POLL_SECONDS: Final = 0.25
_WATCH_RETRY_SECONDS: Final = 1.0
_READERS: Final = 3
_CACHE_KIB: Final = 256
"""Page cache per connection. It is small because frequently read rows are held in memory as objects."""

_log = logging.getLogger(__name__)


def prepare_file(path: Path) -> None:
    """Create the file if it is missing, with mode 0600 and in WAL mode. Safe to call from several processes at once.

    Raises `Fault(UNAVAILABLE)` when the file cannot be used. The message says what to do.
    """
    try:
        create_private(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        with closing(connect(path)) as connection:
            _enable_wal(connection)
    except OSError as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"{path.name} cannot be opened or written. "
            "Its folder must exist and belong to the gateway's user, and the disk must have free space.",
        ) from exc
    except sqlite3.Error as exc:
        raise Fault(
            Kind.UNAVAILABLE,
            f"{path.name} is not a usable database. Check its owner and its disk, "
            "or move it aside and restore it from a backup.",
        ) from exc


def connect(path: Path) -> sqlite3.Connection:
    """Open a plain connection for use on a dedicated thread. The caller begins transactions explicitly."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous=NORMAL")
    # These connections mostly append, so a small page cache is enough.
    connection.execute("PRAGMA cache_size=-1024")
    return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    # A change of journal mode ignores the busy timeout, so it is retried here.
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            break
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_RETRY_SECONDS)
    if mode != "wal":
        raise sqlite3.NotSupportedError("the file system has no shared memory for a write-ahead log")
    # Fails now, not at the first call, when the file is read-only.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def open_engine(path: Path, mode: Literal["read", "write"], connections: int = 1, cache_kib: int = 2000) -> AsyncEngine:
    """Open an engine on a prepared file. A write transaction takes the write lock when it begins.

    `cache_kib` is the page cache size of each connection.
    """
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT,
        hide_parameters=True,
        connect_args={"timeout": BUSY_TIMEOUT, "isolation_level": None, "async_creator_fn": sqlite_driver.connect},
    )
    pragmas = ["PRAGMA foreign_keys=ON", "PRAGMA synchronous=NORMAL", f"PRAGMA cache_size=-{cache_kib}"]
    if mode == "read":
        pragmas.append("PRAGMA query_only=ON")
    opening = "BEGIN IMMEDIATE" if mode == "write" else "BEGIN"

    def configure(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(opening)

    event.listen(engine.sync_engine, "connect", configure)
    event.listen(engine.sync_engine, "begin", begin)
    return engine


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection, None]:
    """Run a transaction: commit when the block ends, roll back when it raises.

    Raises `Fault(UNAVAILABLE)` when it cannot begin.
    """
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(engine.begin())
        except (OperationalError, PoolTimeoutError) as exc:
            raise Fault(Kind.UNAVAILABLE, "The database is busy. Try again.", retry_after=1.0) from exc
        yield connection


class ChangePoller:
    """Reads the rows of the table `changes` that any connection, of this or another process, added. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = connect(path)
        self._version = -1
        self._position = 0
        """Sequence number of the last row that was read. Sequence numbers have no gaps."""

    def skip_to_end(self) -> None:
        """Ignore the changes made so far. Called after migration, before anything is loaded."""
        with self._lock:
            self._position = self._read_end()

    def poll(self) -> Sequence[Change] | None:
        """Return the changes since the last call; None when their rows are already deleted."""
        with self._lock:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return ()
            rows = self._connection.execute(_SELECT_CHANGES, (self._position,)).fetchall()
            # The last row read comes first. It is missing after too many changes, or in a restored older file.
            is_complete = bool(rows) and rows[0][0] == self._position
            self._position = rows[-1][0] if rows else self._read_end()
            # Stored last: after an error, the next call reads the rows again.
            self._version = version
        return [Change(table, key) for _, table, key in rows[1:]] if is_complete else None

    def _read_end(self) -> int:
        (end,) = self._connection.execute("SELECT coalesce(max(sequence), 0) FROM changes").fetchone()
        return end

    def close(self) -> None:
        with self._lock:
            self._connection.close()


_SELECT_CHANGES: Final = "SELECT sequence, table_name, row_key FROM changes WHERE sequence >= ? ORDER BY sequence"


class SqliteDatabase:
    """`gateway.state.database.DatabaseEngine` on SQLite. It ignores the tenant: statements filter by tenant."""

    def __init__(self, path: Path, poller: ChangePoller) -> None:
        self._writer = open_engine(path, "write", cache_kib=_CACHE_KIB)
        self._readers = open_engine(path, "read", _READERS, _CACHE_KIB)
        self._poller = poller
        self._migrated = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> "SqliteDatabase":
        await asyncio.to_thread(prepare_file, path)
        return cls(path, await asyncio.to_thread(ChangePoller, path))

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return transaction(self._writer)

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return transaction(self._readers)

    async def upgrade(self, folder: Path) -> list[str]:
        async with self._writer.connect() as connection:
            applied = await migrate(connection, folder)
        await asyncio.to_thread(self._poller.skip_to_end)
        self._migrated.set()
        return applied

    async def watch(self, on_change: Callable[[Sequence[Change] | None], None]) -> None:
        await self._migrated.wait()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                changes = await asyncio.to_thread(self._poller.poll)
            except sqlite3.Error:
                _log.warning("database: polling for changes failed; retry in %g s", _WATCH_RETRY_SECONDS, exc_info=True)
                await asyncio.sleep(_WATCH_RETRY_SECONDS)
                continue
            if changes is None or changes:
                on_change(changes)

    async def close(self) -> None:
        self._poller.close()
        await self._readers.dispose()
        await self._writer.dispose()
