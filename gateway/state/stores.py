"""Modules' stores: one SQLite file per tenant and store, opened when it is first used."""

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
from gateway.state.private_files import checked
from gateway.state.sqlite import BUSY, open_engine, prepare_file, transaction

if TYPE_CHECKING:
    from gateway.state.postgres_stores import PostgresStores

_OPEN_FILES: Final = 64


class Stores:
    """All stores below one folder. At most `open_files` are open at a time; the longest unused are closed."""

    def __init__(self, files: Path, open_files: int = _OPEN_FILES) -> None:
        self._folder = files
        self._limit = open_files
        self._slots = asyncio.Semaphore(open_files)
        self._files: OrderedDict[Path, _File] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store:
        """The tenant's store of that name. All who share one name the same migrations, or none."""
        path = self._folder / checked(tenant, "tenant") / f"{checked(name, 'store')}.db"
        return _TenantStore(self, path, migrations)

    async def tenants(self, name: str) -> tuple[str, ...]:
        """Those that have a store of that name."""
        return await asyncio.to_thread(self._with_file, f"{checked(name, 'store')}.db")

    def _with_file(self, file: str) -> tuple[str, ...]:
        return tuple(sorted(path.parent.name for path in self._folder.glob(f"*/{file}")))

    @asynccontextmanager
    async def transaction(self, path: Path, migrations: Path | None) -> AsyncGenerator[AsyncConnection, None]:
        """What `Store.transaction` does, for a path that `store` made."""
        file = self._files.setdefault(path, _File(path))
        self._files.move_to_end(path)
        file.users += 1
        try:
            async with AsyncExitStack() as stack:
                await self._take_turn(file, stack)
                engine = await file.ready(migrations)
                yield await stack.enter_async_context(transaction(engine))
        finally:
            file.users -= 1
            self._retire()

    async def _take_turn(self, file: "_File", stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(BUSY):
                # The file first: whoever waits for a busy tenant must not hold a place that others need.
                await stack.enter_async_context(file.turn)
                await stack.enter_async_context(self._slots)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, "The store is busy. Try again.", retry_after=1.0) from exc

    def _retire(self) -> None:
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
        files = list(self._files.values())
        self._files.clear()
        await asyncio.gather(*(file.close() for file in files), *self._closing)


class _File:
    """One store's file; its engine exists from the first transaction on."""

    def __init__(self, path: Path) -> None:
        self.turn = asyncio.Lock()
        self.users = 0
        self._path = path
        self._engine: AsyncEngine | None = None
        self._migrated: set[Path] = set()

    async def ready(self, migrations: Path | None) -> AsyncEngine:
        """Only for whoever has the turn."""
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


async def open_stores(files: Path, url: str | None, connections: int) -> "Stores | PostgresStores":
    """PostgreSQL where an address is given; its driver is an extra, and loaded only then."""
    if url is None:
        return Stores(files)
    from gateway.state.postgres_stores import PostgresStores

    return await PostgresStores.open(url, connections)


@dataclass(frozen=True, slots=True)
class _TenantStore:
    _stores: Stores
    _path: Path
    _migrations: Path | None

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._stores.transaction(self._path, self._migrations)
