"""Backend stores: `open_stores`, and stores in SQLite with one file per tenant and store, opened on first use."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.contract import Store
from gateway.errors import Fault, Kind
from gateway.state.migrations import migrate
from gateway.state.private_files import validate_name
from gateway.state.sqlite import BUSY_TIMEOUT, open_engine, prepare_file, transaction

if TYPE_CHECKING:
    from gateway.state.postgres_stores import PostgresStores

_OPEN_FILES: Final = 64


class SqliteStores:
    """All backend stores below one folder. At most `open_files` files stay open; the least recently used are closed."""

    def __init__(self, folder: Path, open_files: int = _OPEN_FILES) -> None:
        self._folder = folder
        self._limit = open_files
        self._slots = asyncio.Semaphore(open_files)
        self._files: OrderedDict[Path, _File] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store:
        """Return the tenant's store of that name. All users of a store pass the same migrations, or None."""
        path = self._folder / validate_name(tenant, "tenant") / f"{validate_name(name, 'store')}.db"
        return _TenantStore(self, path, migrations)

    async def tenants(self, name: str) -> tuple[str, ...]:
        """Return the tenants that have a store of that name."""
        return await asyncio.to_thread(self._tenants_with_file, f"{validate_name(name, 'store')}.db")

    def _tenants_with_file(self, file: str) -> tuple[str, ...]:
        return tuple(sorted(path.parent.name for path in self._folder.glob(f"*/{file}")))

    @asynccontextmanager
    async def transaction(self, path: Path, migrations: Path | None) -> AsyncGenerator[AsyncConnection, None]:
        """Run a transaction as `Store.transaction` describes, on a path built by `store`."""
        file = self._files.setdefault(path, _File(path))
        self._files.move_to_end(path)
        file.users += 1
        try:
            async with AsyncExitStack() as stack:
                await self._acquire(file, stack)
                engine = await file.prepare(migrations)
                yield await stack.enter_async_context(transaction(engine))
        finally:
            file.users -= 1
            self._close_idle()

    async def _acquire(self, file: "_File", stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(BUSY_TIMEOUT):
                # The file's lock first: a caller waiting for a busy tenant must not occupy a slot.
                await stack.enter_async_context(file.lock)
                await stack.enter_async_context(self._slots)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, "The store is busy. Try again.", retry_after=1.0) from exc

    def _close_idle(self) -> None:
        surplus = len(self._files) - self._limit
        if surplus <= 0:
            return
        idle = [path for path, file in self._files.items() if not file.users]
        for path in idle[:surplus]:
            task = asyncio.create_task(self._files.pop(path).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every file. No transaction may be open."""
        folder = list(self._files.values())
        self._files.clear()
        await asyncio.gather(*(file.close() for file in folder), *self._closing)


class _File:
    """One store's file. Its engine is created by the first transaction."""

    def __init__(self, path: Path) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self._path = path
        self._engine: AsyncEngine | None = None
        self._migrated: set[Path] = set()

    async def prepare(self, migrations: Path | None) -> AsyncEngine:
        """Open and migrate the file if needed. The caller must hold `lock`."""
        if self._engine is None:
            await asyncio.to_thread(prepare_file, self._path)
            self._engine = open_engine(self._path, "write")
        if migrations is not None and migrations not in self._migrated:
            async with self._engine.connect() as connection:
                await migrate(connection, migrations)
            self._migrated.add(migrations)
        return self._engine

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.dispose()


async def open_stores(folder: Path, url: str | None, connections: int) -> "SqliteStores | PostgresStores":
    """Open the stores in the PostgreSQL database at `url`, or as SQLite files in `folder` without one.

    asyncpg is an optional extra: it is imported only when a URL is set.
    """
    if url is None:
        return SqliteStores(folder)
    from gateway.state.postgres_stores import PostgresStores

    return await PostgresStores.open(url, connections)


@dataclass(frozen=True, slots=True)
class _TenantStore:
    _stores: SqliteStores
    _path: Path
    _migrations: Path | None

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._stores.transaction(self._path, self._migrations)
