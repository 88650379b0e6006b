"""The audit log's tables on PostgreSQL, in their own schema. All replicas write to the same tables.

Row-level security isolates tenants; the gateway itself writes with access to all tenants. The audit thread has no event
loop, so `PostgresAuditTables` runs its own.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from gateway.errors import Fault
from gateway.state.audit_chain import (
    LINKED_COLUMNS,
    AuditKey,
    Chain,
    ChainAnchor,
    ChainBreak,
    ChainHead,
    LinkedRow,
    OutsideEvidence,
    Row,
    find_breaks,
)
from gateway.state.audit_sqlite import MIGRATIONS, WITHOUT_ENDED_INTENTS
from gateway.state.migrations import migrate
from gateway.state.postgres import ALL_TENANTS, PostgresMigrations, PostgresPool, advisory_lock_id

SCHEMA: Final = "gatehouse_audit"
_PAGE_SIZE: Final = 1000

T = TypeVar("T")


async def migrate_tables(dsn: str) -> list[str]:
    """Migrate the tables and return the titles of the applied migrations.

    Raises `Fault(UNAVAILABLE)` when the database cannot be used.
    """
    pool = await PostgresPool.open(dsn, 1)
    try:
        async with pool.engine.connect() as connection:
            return await migrate(connection, MIGRATIONS, PostgresMigrations(SCHEMA, shared=True))
    finally:
        await pool.close()


class PostgresAuditTables:
    """`AuditTables` on PostgreSQL: one connection, for one thread that runs no event loop."""

    record_errors: tuple[type[Exception], ...] = (
        asyncpg.DataError,
        asyncpg.IntegrityConstraintViolationError,
        OverflowError,
        UnicodeError,
    )
    storage_errors: tuple[type[Exception], ...] = (
        OSError,
        TimeoutError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        Fault,
    )

    def __init__(self, dsn: str, key: AuditKey | None = None) -> None:
        """Without a key, the tables can only be queried."""
        self._dsn = dsn
        self._key = key or AuditKey(b"")
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None

    def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            with suppress(*self.storage_errors):
                self._run(self._connection.close(timeout=2))
        self._loop.close()

    def sanitize(self, row: Row) -> Row:
        """Replace NUL, which PostgreSQL cannot store in text, with U+FFFD."""
        if any(type(value) is str and "\0" in value for value in row):
            sanitized: Any = tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row)
            return sanitized
        return row

    def write(self, writer: str, records: Sequence[LinkedRow], heads: Mapping[str, ChainHead]) -> None:
        """Write the records and the new chain heads in one transaction. Idempotent: a retry writes no duplicates."""

        async def write(connection: Any) -> None:
            await connection.executemany(_INSERT, records)
            await connection.executemany(_UPSERT_HEAD, [(tenant, writer, *head) for tenant, head in heads.items()])

        self._transaction(write)

    def prune(self, before: float, keep: int) -> int:
        """Delete records older than `before`, and the oldest in excess of `keep`. Returns how many were deleted."""

        async def prune(connection: Any) -> int:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", advisory_lock_id("prune", SCHEMA))
            oldest, count = before, await connection.fetchval("SELECT count(*) FROM audit")
            if count > keep:
                sql = "SELECT at FROM audit ORDER BY at LIMIT 1 OFFSET $1"
                oldest = max(before, await connection.fetchval(sql, count - keep))
            pruned = 0
            for tenant, writer, sequence in await connection.fetch(_SELECT_EXPIRED, oldest):
                hash = await connection.fetchval(_SELECT_HASH, tenant, writer, sequence)
                pruned += len(await connection.fetch(_DELETE_EXPIRED, tenant, writer, sequence))
                seal = self._key.seal("pruned", tenant, writer, sequence, hash)
                await connection.execute(_UPDATE_ANCHOR, sequence, hash, seal, tenant, writer)
            return pruned

        return self._transaction(prune)

    # ---- reading ----

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield records, oldest first. With `limit`, only the newest ones."""
        sql = _SELECT_NEWEST if limit is not None else _SELECT_ALL
        found = self._rows(sql, tenant, tenant, since, principal, limit)
        return (
            dict(zip(LINKED_COLUMNS, row, strict=True))
            for row in (reversed(list(found)) if limit is not None else found)
        )

    def unkeyed_heads(self) -> dict[Chain, ChainHead]:
        """The ends of the chains that earlier versions wrote without a key."""
        return {(row[0], row[1]): (row[2], row[3]) for row in self._rows(_SELECT_UNKEYED, None)}

    def verify(
        self, tenant: str | None = None, evidence: OutsideEvidence = OutsideEvidence()
    ) -> Iterator[ChainBreak | None]:
        """Check the chains of one tenant or of all. Yields as `find_breaks` does."""
        connection = self._ensure_connected()
        # One snapshot: concurrent writes must not appear in only one of the two tables.
        view = connection.transaction(isolation="repeatable_read", readonly=True)
        self._run(view.start())
        try:
            self._run(self._set_tenant(connection, tenant))
            anchors = {
                (row[0], row[1]): ChainAnchor(row[0], row[1], (row[2], row[3]), (row[4], row[5]), row[6])
                for row in self._run(connection.fetch(_SELECT_ANCHORS, tenant))
            }
            rows = self._pages(connection, _SELECT_CHAINED, tenant)
            yield from find_breaks(self._key, anchors, rows, evidence, tenant)
        finally:
            self._run(view.rollback())

    def query(self, sql: str, parameters: Mapping[str, Any], tenant: str | None) -> list[LinkedRow]:
        """Run a query with `:name` placeholders."""
        names = list(dict.fromkeys(_PARAMETER.findall(sql)))
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
        return list(self._rows(numbered, tenant, *(parameters[name] for name in names)))

    def _rows(self, sql: str, tenant: str | None, *values: Any) -> Iterator[LinkedRow]:
        connection = self._ensure_connected()
        view = connection.transaction(isolation="repeatable_read", readonly=True)
        self._run(view.start())
        try:
            self._run(self._set_tenant(connection, tenant))
            yield from self._pages(connection, sql, *values)
        finally:
            self._run(view.rollback())

    def _pages(self, connection: Any, sql: str, *values: Any) -> Iterator[LinkedRow]:
        cursor = self._run(_open_cursor(connection, sql, values))
        while page := self._run(cursor.fetch(_PAGE_SIZE)):
            yield from (tuple(row) for row in page)

    # ---- connection ----

    def _transaction(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work` in a transaction. Retries once on a new connection when an existing connection was lost."""
        fresh = self._connection is None
        try:
            return self._run(self._run_in_transaction(self._ensure_connected(), work))
        except _CONNECTION_ERRORS:
            self._drop()
            if fresh:
                raise
        try:
            return self._run(self._run_in_transaction(self._ensure_connected(), work))
        except _CONNECTION_ERRORS:
            self._drop()
            raise

    async def _run_in_transaction(self, connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        async with connection.transaction():
            await self._set_tenant(connection, None)
            return await work(connection)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _ensure_connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = self._run(_connect(self._dsn))
        return self._connection

    async def _set_tenant(self, connection: Any, tenant: str | None) -> None:
        await connection.execute(_SET_CONTEXT, tenant or ALL_TENANTS)

    def _run(self, work: "Coroutine[Any, Any, T]") -> T:
        return self._loop.run_until_complete(work)


async def _connect(dsn: str) -> Any:
    pool = await PostgresPool.open(dsn, 1)
    return await pool.connect()


async def _open_cursor(connection: Any, sql: str, values: Sequence[Any]) -> Any:
    return await connection.cursor(sql, *values)


_CONNECTION_ERRORS: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    Fault,
)
_PARAMETER: Final = re.compile(r"(?<!:):([a-z]+)")
_SET_CONTEXT: Final = f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', $1, true)"
_COLUMNS: Final = ", ".join(LINKED_COLUMNS)
_INSERT: Final = (
    f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, len(LINKED_COLUMNS) + 1))})"  # noqa: S608 - constant columns
    " ON CONFLICT (tenant, writer, sequence) DO NOTHING"
)
_UPSERT_HEAD: Final = (
    "INSERT INTO audit_chains (tenant, writer, last_sequence, last_hash) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (tenant, writer) DO UPDATE SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash"
)
_SELECT_EXPIRED: Final = "SELECT tenant, writer, max(sequence) FROM audit WHERE at < $1 GROUP BY tenant, writer"
_SELECT_HASH: Final = "SELECT hash FROM audit WHERE tenant = $1 AND writer = $2 AND sequence = $3"
_DELETE_EXPIRED: Final = "DELETE FROM audit WHERE tenant = $1 AND writer = $2 AND sequence <= $3 RETURNING 1"
_UPDATE_ANCHOR: Final = (
    "UPDATE audit_chains SET pruned_sequence = $1, pruned_hash = $2, pruned_seal = $3 WHERE tenant = $4 AND writer = $5"
)
_SELECT_UNKEYED: Final = (
    "SELECT tenant, writer, last_sequence, last_hash FROM audit_chains WHERE last_hash NOT LIKE 'k%'"
)
_TENANT_FILTER: Final = "($1::text IS NULL OR tenant = $1)"
_FILTER: Final = f"{_TENANT_FILTER} AND at >= $2 AND ($3::text IS NULL OR principal = $3)"
_SELECT_ALL: Final = (
    f"SELECT {_COLUMNS} FROM audit WHERE {_FILTER} ORDER BY at, tenant, writer, sequence LIMIT $4::bigint"  # noqa: S608
)
_SELECT_NEWEST: Final = (
    f"SELECT {_COLUMNS} FROM audit WHERE {_FILTER} AND {WITHOUT_ENDED_INTENTS}"  # noqa: S608
    " ORDER BY at DESC, sequence DESC LIMIT $4::bigint"
)
_SELECT_CHAINED: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_TENANT_FILTER} ORDER BY tenant, writer, sequence"  # noqa: S608
_SELECT_ANCHORS: Final = (
    "SELECT tenant, writer, pruned_sequence, pruned_hash, last_sequence, last_hash, pruned_seal FROM audit_chains"  # noqa: S608
    f" WHERE {_TENANT_FILTER}"
)
