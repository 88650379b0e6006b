"""The audit log's tables on PostgreSQL, in a schema of their own: every replica's records in one place.

Row-level security keeps tenants apart here as everywhere; the gateway writes as the house. The log's thread has no
event loop, so the connection has one of its own.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from gateway.errors import Fault
from gateway.state.audit_chain import LINKED, ChainAnchor, ChainBreak, Head, Linked, Row, breaks
from gateway.state.audit_sqlite import MIGRATIONS
from gateway.state.migrations import migrate
from gateway.state.postgres import EVERYONE, PostgresMigrations, PostgresPool, lock_number

SCHEMA: Final = "gatehouse_audit"
_AT_ONCE: Final = 1000

T = TypeVar("T")


async def prepare_tables(dsn: str) -> list[str]:
    """Bring the tables up to date; what was applied. Raises `Fault(UNAVAILABLE)` when the database cannot be used."""
    server = await PostgresPool.open(dsn, 1)
    try:
        async with server.engine.connect() as connection:
            return await migrate(connection, MIGRATIONS, PostgresMigrations(SCHEMA, shared=True))
    finally:
        await server.close()


class PostgresAuditTables:
    """As `AuditFile`: one connection, for one thread in which no event loop runs."""

    bad_record: tuple[type[Exception], ...] = (
        asyncpg.DataError,
        asyncpg.IntegrityConstraintViolationError,
        OverflowError,
        UnicodeError,
    )
    failed: tuple[type[Exception], ...] = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, Fault)

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None

    def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            with suppress(*self.failed):
                self._run(self._connection.close(timeout=2))
        self._loop.close()

    def fit(self, row: Row) -> Row:
        """The one character that PostgreSQL keeps in no text is shown as unreadable."""
        if any(type(value) is str and "\0" in value for value in row):
            kept: Any = tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row)
            return kept
        return row

    def write(self, writer: str, records: Sequence[Linked], heads: Mapping[str, Head]) -> None:
        """All of them, with where their chains end now, or none. Written twice, as after a lost answer, is once."""

        async def write(connection: Any) -> None:
            await connection.executemany(_INSERT, records)
            await connection.executemany(_HEAD, [(tenant, writer, *head) for tenant, head in heads.items()])

        self._transaction(write)

    def prune(self, before: float, keep: int) -> int:
        """Let go of records older than `before`, and of the oldest beyond `keep`; how many. The chains still hold."""

        async def prune(connection: Any) -> int:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_number("prune", SCHEMA))
            oldest, count = before, await connection.fetchval("SELECT count(*) FROM audit")
            if count > keep:
                sql = "SELECT at FROM audit ORDER BY at LIMIT 1 OFFSET $1"
                oldest = max(before, await connection.fetchval(sql, count - keep))
            pruned = 0
            for tenant, writer, sequence in await connection.fetch(_DUE, oldest):
                hash = await connection.fetchval(_HASH, tenant, writer, sequence)
                pruned += len(await connection.fetch(_PRUNE, tenant, writer, sequence))
                await connection.execute(_ANCHOR, sequence, hash, tenant, writer)
            return pruned

        return self._transaction(prune)

    # ---- reading ----

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Oldest first; with a limit, the newest so many."""
        sql = _NEWEST if limit is not None else _ALL
        found = self._rows(sql, tenant, tenant, since, principal, limit)
        return (dict(zip(LINKED, row, strict=True)) for row in (reversed(list(found)) if limit is not None else found))

    def verify(self, tenant: str | None = None) -> Iterator[ChainBreak | None]:
        """See `breaks`: of one tenant, or of all."""
        connection = self._connected()
        # One view: what is written meanwhile is in both or in neither.
        view = connection.transaction(isolation="repeatable_read", readonly=True)
        self._run(view.start())
        try:
            self._run(self._as(connection, tenant))
            anchors = {
                (row[0], row[1]): ChainAnchor(row[0], row[1], (row[2], row[3]), (row[4], row[5]))
                for row in self._run(connection.fetch(_ANCHORS, tenant))
            }
            yield from breaks(anchors, self._pages(connection, _CHAINED, tenant))
        finally:
            self._run(view.rollback())

    def query(self, sql: str, named: Mapping[str, Any], tenant: str | None) -> list[Linked]:
        """Whatever is asked of the tables, with `:names` in it."""
        names = list(dict.fromkeys(_NAME.findall(sql)))
        numbered = _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
        return list(self._rows(numbered, tenant, *(named[name] for name in names)))

    def _rows(self, sql: str, tenant: str | None, *values: Any) -> Iterator[Linked]:
        connection = self._connected()
        view = connection.transaction(isolation="repeatable_read", readonly=True)
        self._run(view.start())
        try:
            self._run(self._as(connection, tenant))
            yield from self._pages(connection, sql, *values)
        finally:
            self._run(view.rollback())

    def _pages(self, connection: Any, sql: str, *values: Any) -> Iterator[Linked]:
        cursor = self._run(_opened(connection, sql, values))
        while page := self._run(cursor.fetch(_AT_ONCE)):
            yield from (tuple(row) for row in page)

    # ---- the connection ----

    def _transaction(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Tried again over a new connection when the one that was there broke: its server may have been restarted."""
        fresh = self._connection is None
        try:
            return self._run(self._once(self._connected(), work))
        except _BROKEN:
            self._drop()
            if fresh:
                raise
        try:
            return self._run(self._once(self._connected(), work))
        except _BROKEN:
            self._drop()
            raise

    async def _once(self, connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        async with connection.transaction():
            await self._as(connection, None)
            return await work(connection)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = self._run(_connect(self._dsn))
        return self._connection

    async def _as(self, connection: Any, tenant: str | None) -> None:
        await connection.execute(_PLACE, tenant or EVERYONE)

    def _run(self, work: "Coroutine[Any, Any, T]") -> T:
        return self._loop.run_until_complete(work)


async def _connect(dsn: str) -> Any:
    server = await PostgresPool.open(dsn, 1)
    return await server.connect()


async def _opened(connection: Any, sql: str, values: Sequence[Any]) -> Any:
    return await connection.cursor(sql, *values)


_BROKEN: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    Fault,
)
_NAME: Final = re.compile(r"(?<!:):([a-z]+)")
_PLACE: Final = f"SELECT set_config('search_path', '{SCHEMA}', true), set_config('gatehouse.tenant', $1, true)"
_COLUMNS: Final = ", ".join(LINKED)
_INSERT: Final = (
    f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, len(LINKED) + 1))})"  # noqa: S608 - ours
    " ON CONFLICT (tenant, writer, sequence) DO NOTHING"
)
_HEAD: Final = (
    "INSERT INTO audit_chains (tenant, writer, last_sequence, last_hash) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (tenant, writer) DO UPDATE SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash"
)
_DUE: Final = "SELECT tenant, writer, max(sequence) FROM audit WHERE at < $1 GROUP BY tenant, writer"
_HASH: Final = "SELECT hash FROM audit WHERE tenant = $1 AND writer = $2 AND sequence = $3"
_PRUNE: Final = "DELETE FROM audit WHERE tenant = $1 AND writer = $2 AND sequence <= $3 RETURNING 1"
_ANCHOR: Final = "UPDATE audit_chains SET pruned_sequence = $1, pruned_hash = $2 WHERE tenant = $3 AND writer = $4"
_OF: Final = "($1::text IS NULL OR tenant = $1)"
_WANTED: Final = f"{_OF} AND at >= $2 AND ($3::text IS NULL OR principal = $3)"
_ALL: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_WANTED} ORDER BY at, tenant, writer, sequence LIMIT $4::bigint"  # noqa: S608
_NEWEST: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_WANTED} ORDER BY at DESC, sequence DESC LIMIT $4::bigint"  # noqa: S608
_CHAINED: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_OF} ORDER BY tenant, writer, sequence"  # noqa: S608
_ANCHORS: Final = (
    f"SELECT tenant, writer, pruned_sequence, pruned_hash, last_sequence, last_hash FROM audit_chains WHERE {_OF}"  # noqa: S608
)
