"""The one place that knows PostgreSQL: connections, transactions bound to a tenant, and row-level security.

Every transaction says first whose rows it may see. On a connection where nothing was said, every table with a tenant is
empty and takes no row. asyncpg is imported with this file, and this file only when an address was set.

The gateway's own tables on PostgreSQL, and word of every change by LISTEN and NOTIFY.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import Fault, Kind
from gateway.state.migrations import migrate
from gateway.state.unreachable import Unreachable

BUSY: Final = 10.0

"""Seconds to wait for a connection, or for another writer, before giving up."""

EVERYONE: Final = "*"

"""The house's own word in place of a tenant: no tenant can be named so."""

ROLE: Final = "gatehouse_rows"

"""Who the gateway acts as when its own login would be exempt from row-level security."""

TENANT: Final = "nullif(current_setting('gatehouse.tenant', true), '')"

_CONNECT: Final = 5

_BEGIN: Final = 5

_STATEMENT: Final = 60

_IDLE: Final = 60_000
# Not ours to mend and gone when tried again: locks, limits, restarts, lost connections.
_PASSING: Final = ("08", "53", "55P03", "57P", "25P03", "40")

_log = logging.getLogger(__name__)


_connect = cast("Callable[..., Awaitable[Any]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]


FAILURES: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def plain_connection(dsn: str) -> Any:
    """One asyncpg connection, as whom the address says. Raises one of `FAILURES`."""
    return await _connect(dsn, timeout=_CONNECT)


class PostgresPool:
    """A pool of connections to one database. Open it with `Postgres.open`."""

    def __init__(self, dsn: str, role: str | None, connections: int) -> None:
        self._dsn = dsn
        self._settings = {
            "application_name": "gatehouse",
            "lock_timeout": f"{BUSY:g}s",
            "idle_in_transaction_session_timeout": str(_IDLE),
            **({"role": role} if role is not None else {}),
        }
        self.engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self.connect,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=BUSY,
            hide_parameters=True,
        )

    @classmethod
    async def open(cls, dsn: str, connections: int) -> "PostgresPool":
        """Raises `Away` when the database cannot be reached, `Fault` when it would not keep tenants apart."""
        try:
            return cls(dsn, await _role(dsn), connections)
        except FAILURES as exc:
            raise Unreachable("database.url", dsn, "The database cannot be used now. Try again.", exc) from exc

    async def connect(self) -> Any:
        """A plain asyncpg connection, for what is no transaction."""
        return await _connect(self._dsn, timeout=_CONNECT, command_timeout=_STATEMENT, server_settings=self._settings)

    @asynccontextmanager
    async def transaction(
        self, opening: TextClause, values: Mapping[str, Any], *, read_only: bool = False
    ) -> AsyncGenerator[AsyncConnection, None]:
        """One transaction that begins with this statement; `Fault(UNAVAILABLE)` when the database fails it."""
        try:
            async with AsyncExitStack() as stack:
                yield await self._begin(stack, opening, values, read_only=read_only)
        except DBAPIError as exc:
            if not _passing(exc):
                raise
            raise _unreachable() from exc

    async def _begin(
        self, stack: AsyncExitStack, opening: TextClause, values: Mapping[str, Any], *, read_only: bool
    ) -> AsyncConnection:
        try:
            try:
                return await self._begin_once(stack, opening, values, read_only=read_only)
            except DBAPIError as exc:
                if not exc.connection_invalidated:
                    raise
                # The server went away while the connection was idle: the pool has thrown all such away.
                return await self._begin_once(stack, opening, values, read_only=read_only)
        except (OSError, TimeoutError, PoolTimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            raise _unreachable() from exc

    async def _begin_once(
        self, stack: AsyncExitStack, opening: TextClause, values: Mapping[str, Any], *, read_only: bool
    ) -> AsyncConnection:
        async with AsyncExitStack() as begun:
            connection = await begun.enter_async_context(self.engine.connect())
            if read_only:
                await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            # A connection whose other end is silently gone shows it here: what follows may take its time, this may not.
            async with asyncio.timeout(_BEGIN):
                await begun.enter_async_context(connection.begin())
                await connection.execute(opening, values)
            stack.push_async_exit(begun.pop_all())
        return connection

    async def close(self) -> None:
        await self.engine.dispose()


async def _role(dsn: str) -> str | None:
    """Superusers see every row whatever the policies say: then all is done as a role that does not."""
    connection = await _connect(dsn, timeout=_CONNECT)
    try:
        if not await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
            return None
        owner = await connection.fetchval(
            "SELECT rolname FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner"
            " WHERE nspname = 'gatehouse' AND NOT (rolsuper OR rolbypassrls)"
        )
        if owner is not None:
            return owner
        await connection.execute(_MAKE_ROLE)
        return ROLE
    finally:
        await connection.close(timeout=_CONNECT)


# Several processes may start at once, and roles belong to the whole server.
_MAKE_ROLE: Final = f"""
DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(8243017);
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}') THEN
    BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  END IF;
  EXECUTE format('GRANT CREATE, CONNECT ON DATABASE %I TO {ROLE}', current_database());
END $$
"""  # noqa: S608 - our own constant


class PostgresMigrations:
    """Migrations of one schema. Every table in it belongs to tenants (`shared` False), or only those that say so."""

    suffix = "postgres"

    def __init__(self, schema: str, *, shared: bool) -> None:
        self._schema = schema
        self._shared = shared

    async def lock(self, connection: AsyncConnection) -> None:
        await connection.execute(_LOCK, {"lock": lock_number("migrate", self._schema)})
        await connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
        await connection.execute(_PLACE, {"schema": f'"{self._schema}"'})

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        # As a script: PostgreSQL itself knows best where a statement ends.
        raw: Any = await connection.get_raw_connection()
        try:
            await raw.driver_connection.execute(sql)
        except asyncpg.PostgresError as exc:
            raise DBAPIError(None, None, exc) from exc

    async def adopt(self, connection: AsyncConnection) -> None:
        """Give each new table its tenant, its keys within the tenant, and row-level security."""
        rows = await connection.execute(_TABLES, {"schema": self._schema})
        for table, has_tenant, guarded in rows.all():
            if not has_tenant and not self._shared:
                await self._give_tenant(connection, table)
            if not guarded and (has_tenant or not self._shared):
                await connection.exec_driver_sql(f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY')
                await connection.exec_driver_sql(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY')
                whole = f" OR {TENANT} = '{EVERYONE}'" if self._shared else ""
                await connection.exec_driver_sql(
                    f'CREATE POLICY tenant_rows ON "{table}" USING (tenant = {TENANT}{whole})'
                )
        if not self._shared:
            for index, definition, constraint, table in (
                await connection.execute(_KEYS, {"schema": self._schema})
            ).all():
                await _rekey(connection, index, definition, constraint, table)

    async def _give_tenant(self, connection: AsyncConnection, table: str) -> None:
        await connection.exec_driver_sql(f'ALTER TABLE "{table}" ADD COLUMN tenant TEXT NOT NULL DEFAULT {TENANT}')


async def _rekey(connection: AsyncConnection, index: str, definition: str, constraint: str | None, table: str) -> None:
    """What was unique is unique within a tenant."""
    head, _, columns = definition.partition("(")
    if constraint is None:
        await connection.exec_driver_sql(f'DROP INDEX "{index}"')
        await connection.exec_driver_sql(f"{head}(tenant, {columns}")
        return
    kind = "PRIMARY KEY" if constraint == "p" else "UNIQUE"
    await connection.exec_driver_sql(f'ALTER TABLE "{table}" DROP CONSTRAINT "{index}"')
    await connection.exec_driver_sql(f'ALTER TABLE "{table}" ADD CONSTRAINT "{index}" {kind} (tenant, {columns}')


def lock_number(*words: str) -> int:
    """A number for PostgreSQL's advisory locks, the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:8], signed=True)


def _passing(exc: DBAPIError) -> bool:
    state = str(getattr(exc.orig, "sqlstate", None) or "")
    return exc.connection_invalidated or state.startswith(_PASSING)


def _unreachable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The database cannot be used now. Try again.", retry_after=1.0)


_LOCK: Final = text("SELECT pg_advisory_xact_lock(:lock)")

_PLACE: Final = text("SELECT set_config('search_path', :schema, true)")

_TABLES: Final = text(
    "SELECT c.relname, EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant'"
    " AND NOT a.attisdropped), c.relrowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relkind = 'r' AND c.relname <> 'migrations' ORDER BY c.relname"
)

_KEYS: Final = text(
    "SELECT i.relname, pg_get_indexdef(i.oid), k.contype::text, t.relname FROM pg_index x"
    " JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid"
    " JOIN pg_namespace n ON n.oid = t.relnamespace LEFT JOIN pg_constraint k ON k.conindid = i.oid"
    " WHERE n.nspname = :schema AND x.indisunique AND t.relname <> 'migrations' AND NOT EXISTS (SELECT 1 FROM"
    " pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'tenant' AND a.attnum = ANY (x.indkey))"
)


SCHEMA: Final = "gatehouse"

_CONNECTIONS: Final = 4

_HEARTBEAT: Final = 2.0

_RETRY: Final = (0.1, 0.5, 1.0, 2.0)

_READ: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true)"
)
# Told at the commit and never after a roll-back; one writer at a time, as it is on SQLite.
_WRITE: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true),"
    " pg_advisory_xact_lock(:lock), pg_notify('gatehouse', '')"
)


class PostgresDatabase:
    """`gateway.state.database.Engine` on PostgreSQL."""

    def __init__(self, server: PostgresPool) -> None:
        self._server = server

    @classmethod
    async def open(cls, dsn: str) -> "PostgresDatabase":
        return cls(await PostgresPool.open(dsn, _CONNECTIONS))

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._server.transaction(_WRITE, {"tenant": tenant or EVERYONE, "lock": lock_number("write", SCHEMA)})

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._server.transaction(_READ, {"tenant": tenant or EVERYONE}, read_only=True)

    async def upgrade(self, folder: Path) -> list[str]:
        async with self._server.engine.connect() as connection:
            return await migrate(connection, folder, PostgresMigrations(SCHEMA, shared=True))

    async def watch(self, told: Callable[[], None]) -> None:
        tries = 0
        while True:
            try:
                tries = 0 if await self._listen(told) else tries
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                _log.warning("the database does not tell of its changes; it is asked again", exc_info=tries == 0)
            await asyncio.sleep(_RETRY[min(tries, len(_RETRY) - 1)])
            tries += 1

    async def _listen(self, told: Callable[[], None]) -> bool:
        connection = await self._server.connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _connection: lost.set())  # pyright: ignore[reportUnknownLambdaType]
            await connection.add_listener("gatehouse", lambda *_about: told())  # pyright: ignore[reportUnknownLambdaType]
            # Whatever was committed while nobody listened.
            told()
            while not lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), _HEARTBEAT)
                if not lost.is_set():
                    # A connection that is cut off somewhere on the way says nothing, for ever.
                    await connection.fetchval("SELECT 1", timeout=_HEARTBEAT)
            return True
        finally:
            connection.terminate()

    async def close(self) -> None:
        await self._server.close()
