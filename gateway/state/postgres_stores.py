"""Backend stores on PostgreSQL: one schema per store, which holds the rows of all tenants.

Backends use the same SQL as on SQLite: the `tenant` column has a default, and row-level security hides the rows of
other tenants.
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
from gateway.state.postgres import BUSY_TIMEOUT, PostgresMigrations, PostgresPool, advisory_lock_id
from gateway.state.private_files import validate_name

PREFIX: Final = "gatehouse-"
REGISTRY_SCHEMA: Final = "gatehouse_stores"
"""Schema of the registry of tenants by store. It holds no tenant data, so row-level security does not apply to it."""

# The lock serializes a tenant's transactions in one store, as SQLite does: rows that a backend has read cannot change
# before it writes.
_BEGIN_TRANSACTION: Final = text(
    "SELECT set_config('search_path', :schema, true), set_config('gatehouse.tenant', :tenant, true),"
    " pg_advisory_xact_lock(:lock)"
)


_CREATE_REGISTRY: Final = text(
    f"CREATE TABLE IF NOT EXISTS {REGISTRY_SCHEMA}.tenants"
    " (store TEXT NOT NULL, tenant TEXT NOT NULL, PRIMARY KEY (store, tenant))"
)
_REGISTER_TENANT: Final = text(f"INSERT INTO {REGISTRY_SCHEMA}.tenants VALUES (:store, :tenant) ON CONFLICT DO NOTHING")  # noqa: S608 - constant
_SELECT_TENANTS: Final = text(f"SELECT tenant FROM {REGISTRY_SCHEMA}.tenants WHERE store = :store ORDER BY tenant")  # noqa: S608 - constant


class PostgresStores:
    """All backend stores in one database. Open it with `PostgresStores.open`."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._migrated: set[tuple[str, Path | None]] = set()
        self._registered: set[tuple[str, str]] = set()
        self._migration_lock = asyncio.Lock()

    @classmethod
    async def open(cls, dsn: str, connections: int) -> "PostgresStores":
        return cls(await PostgresPool.open(dsn, connections))

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store:
        """Return the tenant's store of that name. All users of a store pass the same migrations, or None."""
        return _TenantStore(self, validate_name(tenant, "tenant"), validate_name(name, "store"), migrations)

    async def tenants(self, name: str) -> tuple[str, ...]:
        """Return the tenants that have used the store."""
        await self.upgrade(validate_name(name, "store"), None)
        async with self._pool.transaction(text("SELECT 1"), {}, read_only=True) as connection:
            rows = await connection.execute(_SELECT_TENANTS, {"store": name})
            return tuple(tenant for (tenant,) in rows)

    async def upgrade(self, name: str, migrations: Path | None) -> list[str]:
        """Migrate the store's tables, for all tenants, and return the titles of the applied migrations."""
        async with self._migration_lock:
            if (name, migrations) in self._migrated:
                return []
            applied: list[str] = []
            schema = PREFIX + name
            async with self._pool.transaction(text("SELECT 1"), {}) as connection:
                await PostgresMigrations(REGISTRY_SCHEMA, shared=True).lock(connection)
                await connection.execute(_CREATE_REGISTRY)
                await PostgresMigrations(schema, shared=False).lock(connection)
            if migrations is not None:
                async with self._pool.engine.connect() as connection:
                    applied = await migrate(connection, migrations, PostgresMigrations(schema, shared=False))
            self._migrated.add((name, migrations))
            return applied

    @asynccontextmanager
    async def transaction(
        self, tenant: str, name: str, migrations: Path | None
    ) -> AsyncGenerator[AsyncConnection, None]:
        """Run a transaction as `Store.transaction` describes."""
        if (name, migrations) not in self._migrated:
            await self.upgrade(name, migrations)
        values: dict[str, Any] = {
            "schema": f'"{PREFIX}{name}"',
            "tenant": tenant,
            "lock": advisory_lock_id("store", tenant, name),
        }
        async with AsyncExitStack() as stack:
            await self._acquire_lock(tenant, name, stack)
            connection = await stack.enter_async_context(self._pool.transaction(_BEGIN_TRANSACTION, values))
            if (tenant, name) not in self._registered:
                await connection.execute(_REGISTER_TENANT, {"store": name, "tenant": tenant})
            yield connection
        self._registered.add((tenant, name))

    async def _acquire_lock(self, tenant: str, name: str, stack: AsyncExitStack) -> None:
        """Wait for the tenant's previous transaction before taking a connection from the pool."""
        lock = self._locks.get((tenant, name))
        if lock is None:
            lock = self._locks[(tenant, name)] = asyncio.Lock()
        try:
            async with asyncio.timeout(BUSY_TIMEOUT):
                await stack.enter_async_context(lock)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, "The store is busy. Try again.", retry_after=1.0) from exc

    async def close(self) -> None:
        """Close the pool. No transaction may be open."""
        await self._pool.close()


@dataclass(frozen=True, slots=True)
class _TenantStore:
    _stores: PostgresStores
    _tenant: str
    _name: str
    _migrations: Path | None

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._stores.transaction(self._tenant, self._name, self._migrations)
