"""PostgreSQL: connections, tenant-bound transactions, row-level security, and the gateway's own tables.

Each transaction first sets the tenant whose rows it may access. Without a tenant, every table with a `tenant` column
appears empty and rejects inserts. Triggers announce changed rows with NOTIFY. This module imports asyncpg, an
optional extra, so it is imported only when a database URL is set.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import Fault, Kind
from gateway.state.changes import Change
from gateway.state.migrations import migrate
from gateway.state.unreachable import Unreachable

BUSY_TIMEOUT: Final = 10.0
"""Maximum seconds to wait for a connection or for another writer."""
ALL_TENANTS: Final = "*"
"""Value of the tenant setting that gives access to the rows of all tenants. It is not a valid tenant name."""
ROLE: Final = "gatehouse_rows"
"""Role that the gateway assumes when its login is exempt from row-level security."""
SCHEMA: Final = "gatehouse"
"""Schema of the gateway's own tables."""
TENANT: Final = "nullif(current_setting('gatehouse.tenant', true), '')"
"""SQL expression for the tenant of the current transaction."""
FAILURES: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Exceptions of a connection that cannot be opened or used."""
_CONNECT_TIMEOUT: Final = 5
_BEGIN_TIMEOUT: Final = 5
_STATEMENT_TIMEOUT: Final = 60
_IDLE_TIMEOUT_MS: Final = 60_000
# SQLSTATE prefixes of errors that a retry may resolve: lost connections, limits, locks, restarts, serialization.
_TRANSIENT_STATES: Final = ("08", "53", "55P03", "57P", "25P03", "40")
_CONNECTIONS: Final = 4
_HEARTBEAT_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)

_log = logging.getLogger(__name__)
_connect = cast("Callable[..., Awaitable[Any]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]


async def open_connection(dsn: str) -> Any:
    """Open one asyncpg connection with the login of the URL. Raises one of `FAILURES`."""
    return await _connect(dsn, timeout=_CONNECT_TIMEOUT)


class PostgresPool:
    """A connection pool for one database. Open it with `PostgresPool.open`."""

    def __init__(self, dsn: str, role: str | None, connections: int) -> None:
        self._dsn = dsn
        self._settings = {
            "application_name": "gatehouse",
            "lock_timeout": f"{BUSY_TIMEOUT:g}s",
            "idle_in_transaction_session_timeout": str(_IDLE_TIMEOUT_MS),
            **({"role": role} if role is not None else {}),
        }
        self.engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self.connect,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=BUSY_TIMEOUT,
            hide_parameters=True,
        )

    @classmethod
    async def open(cls, dsn: str, connections: int) -> "PostgresPool":
        """Open a pool. Raises `Unreachable` when the database cannot be reached."""
        try:
            return cls(dsn, await _select_role(dsn), connections)
        except FAILURES as exc:
            raise Unreachable("database.url", dsn, "The database cannot be used now. Try again.", exc) from exc

    async def connect(self) -> Any:
        """Open a plain asyncpg connection outside the pool."""
        return await _connect(
            self._dsn, timeout=_CONNECT_TIMEOUT, command_timeout=_STATEMENT_TIMEOUT, server_settings=self._settings
        )

    @asynccontextmanager
    async def transaction(
        self, opening: TextClause, values: Mapping[str, Any], *, read_only: bool = False
    ) -> AsyncGenerator[AsyncConnection, None]:
        """Run a transaction that starts with `opening`. Raises `Fault(UNAVAILABLE)` on a transient database error."""
        try:
            async with AsyncExitStack() as stack:
                yield await self._begin(stack, opening, values, read_only=read_only)
        except DBAPIError as exc:
            if not _is_transient(exc):
                raise
            raise _unavailable() from exc

    async def _begin(
        self, stack: AsyncExitStack, opening: TextClause, values: Mapping[str, Any], *, read_only: bool
    ) -> AsyncConnection:
        try:
            try:
                return await self._begin_once(stack, opening, values, read_only=read_only)
            except DBAPIError as exc:
                if not exc.connection_invalidated:
                    raise
                # The idle connection was lost. The pool has discarded all such connections, so one retry is enough.
                return await self._begin_once(stack, opening, values, read_only=read_only)
        except (OSError, TimeoutError, PoolTimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            raise _unavailable() from exc

    async def _begin_once(
        self, stack: AsyncExitStack, opening: TextClause, values: Mapping[str, Any], *, read_only: bool
    ) -> AsyncConnection:
        async with AsyncExitStack() as begun:
            connection = await begun.enter_async_context(self.engine.connect())
            if read_only:
                await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            # Detects a half-open connection early. The statements that follow may legitimately take longer.
            async with asyncio.timeout(_BEGIN_TIMEOUT):
                await begun.enter_async_context(connection.begin())
                await connection.execute(opening, values)
            stack.push_async_exit(begun.pop_all())
        return connection

    async def close(self) -> None:
        await self.engine.dispose()


async def _select_role(dsn: str) -> str | None:
    """Return the role to assume, or None. Row-level security does not apply to superusers, so they assume a role."""
    connection = await _connect(dsn, timeout=_CONNECT_TIMEOUT)
    try:
        if not await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
            return None
        owner = await connection.fetchval(
            "SELECT rolname FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner"
            " WHERE nspname = 'gatehouse' AND NOT (rolsuper OR rolbypassrls)"
        )
        if owner is not None:
            return owner
        await connection.execute(_CREATE_ROLE)
        return ROLE
    finally:
        await connection.close(timeout=_CONNECT_TIMEOUT)


# Several processes may start at once, and roles are shared by the whole server.
_CREATE_ROLE: Final = f"""
DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(8243017);
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}') THEN
    BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
  END IF;
  EXECUTE format('GRANT CREATE, CONNECT ON DATABASE %I TO {ROLE}', current_database());
END $$
"""  # noqa: S608 - constant role name


class PostgresMigrations:
    """Migrations of one schema.

    With `shared`, only tables that declare a `tenant` column are isolated, and `ALL_TENANTS` sees all their rows.
    Otherwise every table gets a `tenant` column and is isolated.
    """

    suffix = "postgres"

    def __init__(self, schema: str, *, shared: bool) -> None:
        self._schema = schema
        self._shared = shared

    async def lock(self, connection: AsyncConnection) -> None:
        await connection.execute(_LOCK, {"lock": advisory_lock_id("migrate", self._schema)})
        await connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
        await connection.execute(_SET_SEARCH_PATH, {"schema": f'"{self._schema}"'})

    async def run(self, connection: AsyncConnection, sql: str) -> None:
        # Sent as one script: PostgreSQL splits it into statements.
        raw: Any = await connection.get_raw_connection()
        try:
            await raw.driver_connection.execute(sql)
        except asyncpg.PostgresError as exc:
            raise DBAPIError(None, None, exc) from exc

    async def secure_tables(self, connection: AsyncConnection) -> None:
        """Add the tenant column, tenant-scoped keys and row-level security to new tables."""
        rows = await connection.execute(_SELECT_TABLES, {"schema": self._schema})
        for table, has_tenant, has_row_security in rows.all():
            if not has_tenant and not self._shared:
                await self._add_tenant_column(connection, table)
            if not has_row_security and (has_tenant or not self._shared):
                await connection.exec_driver_sql(f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY')
                await connection.exec_driver_sql(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY')
                all_tenants = f" OR {TENANT} = '{ALL_TENANTS}'" if self._shared else ""
                await connection.exec_driver_sql(
                    f'CREATE POLICY tenant_rows ON "{table}" USING (tenant = {TENANT}{all_tenants})'
                )
        if not self._shared:
            for index, definition, constraint, table in (
                await connection.execute(_SELECT_KEYS, {"schema": self._schema})
            ).all():
                await _add_tenant_to_key(connection, index, definition, constraint, table)

    async def _add_tenant_column(self, connection: AsyncConnection, table: str) -> None:
        await connection.exec_driver_sql(f'ALTER TABLE "{table}" ADD COLUMN tenant TEXT NOT NULL DEFAULT {TENANT}')


async def _add_tenant_to_key(
    connection: AsyncConnection, index: str, definition: str, constraint: str | None, table: str
) -> None:
    """Make a unique key unique per tenant."""
    head, _, columns = definition.partition("(")
    if constraint is None:
        await connection.exec_driver_sql(f'DROP INDEX "{index}"')
        await connection.exec_driver_sql(f"{head}(tenant, {columns}")
        return
    kind = "PRIMARY KEY" if constraint == "p" else "UNIQUE"
    await connection.exec_driver_sql(f'ALTER TABLE "{table}" DROP CONSTRAINT "{index}"')
    await connection.exec_driver_sql(f'ALTER TABLE "{table}" ADD CONSTRAINT "{index}" {kind} (tenant, {columns}')


def advisory_lock_id(*parts: str) -> int:
    """Return an advisory lock id that is the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8], signed=True)


def _is_transient(exc: DBAPIError) -> bool:
    state = str(getattr(exc.orig, "sqlstate", None) or "")
    return exc.connection_invalidated or state.startswith(_TRANSIENT_STATES)


def _unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The database cannot be used now. Try again.", retry_after=1.0)


_LOCK: Final = text("SELECT pg_advisory_xact_lock(:lock)")
_SET_SEARCH_PATH: Final = text("SELECT set_config('search_path', :schema, true)")
_SELECT_TABLES: Final = text(
    "SELECT c.relname, EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant'"
    " AND NOT a.attisdropped), c.relrowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relkind = 'r' AND c.relname <> 'migrations' ORDER BY c.relname"
)
_SELECT_KEYS: Final = text(
    "SELECT i.relname, pg_get_indexdef(i.oid), k.contype::text, t.relname FROM pg_index x"
    " JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid"
    " JOIN pg_namespace n ON n.oid = t.relnamespace LEFT JOIN pg_constraint k ON k.conindid = i.oid"
    " WHERE n.nspname = :schema AND x.indisunique AND t.relname <> 'migrations' AND NOT EXISTS (SELECT 1 FROM"
    " pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'tenant' AND a.attnum = ANY (x.indkey))"
)


def _parse_notification(payload: str) -> Sequence[Change] | None:
    """Return the change of a trigger's notification; None for the empty one that versions up to 0.1 also send."""
    try:
        change: Any = json.loads(payload)
        return (Change(change["table"], change["key"]),)
    except (ValueError, TypeError, KeyError):
        return None


_BEGIN_READ: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true)"
)
# The lock admits one writer at a time, as on SQLite.
_BEGIN_WRITE: Final = text(
    f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', :tenant, true),"
    " pg_advisory_xact_lock(:lock)"
)


class PostgresDatabase:
    """`gateway.state.database.DatabaseEngine` on PostgreSQL."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str) -> "PostgresDatabase":
        return cls(await PostgresPool.open(dsn, _CONNECTIONS))

    def writing(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(
            _BEGIN_WRITE, {"tenant": tenant or ALL_TENANTS, "lock": advisory_lock_id("write", SCHEMA)}
        )

    def reading(self, tenant: str | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._pool.transaction(_BEGIN_READ, {"tenant": tenant or ALL_TENANTS}, read_only=True)

    async def upgrade(self, folder: Path) -> list[str]:
        async with self._pool.engine.connect() as connection:
            return await migrate(connection, folder, PostgresMigrations(SCHEMA, shared=True))

    async def watch(self, on_change: Callable[[Sequence[Change] | None], None]) -> None:
        attempts = 0
        while True:
            try:
                attempts = 0 if await self._listen(on_change) else attempts
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                _log.warning("database: LISTEN connection lost; reconnecting", exc_info=attempts == 0)
            await asyncio.sleep(_RETRY_SECONDS[min(attempts, len(_RETRY_SECONDS) - 1)])
            attempts += 1

    async def _listen(self, on_change: Callable[[Sequence[Change] | None], None]) -> bool:
        def receive(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
            on_change(_parse_notification(payload))

        connection = await self._pool.connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _connection: lost.set())  # pyright: ignore[reportUnknownLambdaType]
            await connection.add_listener("gatehouse", receive)
            # Covers commits made while no listener was connected.
            on_change(None)
            while not lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), _HEARTBEAT_SECONDS)
                if not lost.is_set():
                    # Detects a half-open connection, which never reports an error by itself.
                    await connection.fetchval("SELECT 1", timeout=_HEARTBEAT_SECONDS)
            return True
        finally:
            connection.terminate()

    async def close(self) -> None:
        await self._pool.close()
