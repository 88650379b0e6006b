"""Modules' stores on PostgreSQL: a schema for each store, and in it every tenant's rows, kept apart by policy.

The modules' SQL is the same as on SQLite: the tenant's column fills itself, and nobody sees another tenant's rows.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.contract import Store
from gateway.errors import Fault, Kind
from gateway.state.migrations import migrate
from gateway.state.postgres import BUSY, PostgresMigrations, PostgresPool, lock_number
from gateway.state.private_files import checked

PREFIX: Final = "gatehouse-"
BOOK: Final = "gatehouse_stores"
"""The schema that holds nothing but who uses which store: no tenant's rows, so no policy hides it."""

# The lock makes a tenant's transactions in one store take turns, as those on one SQLite file do: what a module has read
# is still so when it writes.
_OPENING: Final = text(
    "SELECT set_config('search_path', :schema, true), set_config('gatehouse.tenant', :tenant, true),"
    " pg_advisory_xact_lock(:lock)"
)


_OPEN_BOOK: Final = text(
    f"CREATE TABLE IF NOT EXISTS {BOOK}.tenants"
    " (store TEXT NOT NULL, tenant TEXT NOT NULL, PRIMARY KEY (store, tenant))"
)
_ENTER: Final = text(f"INSERT INTO {BOOK}.tenants VALUES (:store, :tenant) ON CONFLICT DO NOTHING")  # noqa: S608 - ours
_SEEN: Final = text(f"SELECT tenant FROM {BOOK}.tenants WHERE store = :store ORDER BY tenant")  # noqa: S608 - ours


class PostgresStores:
    """All stores in one database. Open it with `PostgresStores.open`."""

    def __init__(self, server: PostgresPool) -> None:
        self._server = server
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._migrated: set[tuple[str, Path | None]] = set()
        self._entered: set[tuple[str, str]] = set()
        self._migrating = asyncio.Lock()

    @classmethod
    async def open(cls, dsn: str, connections: int) -> "PostgresStores":
        return cls(await PostgresPool.open(dsn, connections))

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store:
        """The tenant's store of that name. All who share one name the same migrations, or none."""
        return _TenantStore(self, checked(tenant, "tenant"), checked(name, "store"), migrations)

    async def tenants(self, name: str) -> tuple[str, ...]:
        """Who has used the store of that name."""
        await self.upgrade(checked(name, "store"), None)
        async with self._server.transaction(text("SELECT 1"), {}, read_only=True) as connection:
            rows = await connection.execute(_SEEN, {"store": name})
            return tuple(tenant for (tenant,) in rows)

    async def upgrade(self, name: str, migrations: Path | None) -> list[str]:
        """Bring the store's tables up to date, for all tenants; what was applied."""
        async with self._migrating:
            if (name, migrations) in self._migrated:
                return []
            done: list[str] = []
            schema = PREFIX + name
            async with self._server.transaction(text("SELECT 1"), {}) as connection:
                await PostgresMigrations(BOOK, shared=True).lock(connection)
                await connection.execute(_OPEN_BOOK)
                await PostgresMigrations(schema, shared=False).lock(connection)
            if migrations is not None:
                async with self._server.engine.connect() as connection:
                    done = await migrate(connection, migrations, PostgresMigrations(schema, shared=False))
            self._migrated.add((name, migrations))
            return done

    @asynccontextmanager
    async def transaction(
        self, tenant: str, name: str, migrations: Path | None
    ) -> AsyncGenerator[AsyncConnection, None]:
        """What `Store.transaction` does."""
        if (name, migrations) not in self._migrated:
            await self.upgrade(name, migrations)
        values: dict[str, Any] = {
            "schema": f'"{PREFIX}{name}"',
            "tenant": tenant,
            "lock": lock_number("store", tenant, name),
        }
        async with AsyncExitStack() as stack:
            await self._take_turn(tenant, name, stack)
            connection = await stack.enter_async_context(self._server.transaction(_OPENING, values))
            if (tenant, name) not in self._entered:
                await connection.execute(_ENTER, {"store": name, "tenant": tenant})
            yield connection
        self._entered.add((tenant, name))

    async def _take_turn(self, tenant: str, name: str, stack: AsyncExitStack) -> None:
        """Whoever waits for a busy tenant must not hold a connection that others need."""
        turn = self._turns.get((tenant, name))
        if turn is None:
            turn = self._turns[(tenant, name)] = asyncio.Lock()
        try:
            async with asyncio.timeout(BUSY):
                await stack.enter_async_context(turn)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, "The store is busy. Try again.", retry_after=1.0) from exc

    async def close(self) -> None:
        """No transaction may be open."""
        await self._server.close()


@dataclass(frozen=True, slots=True)
class _TenantStore:
    _stores: PostgresStores
    _tenant: str
    _name: str
    _migrations: Path | None

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._stores.transaction(self._tenant, self._name, self._migrations)
