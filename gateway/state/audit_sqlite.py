"""The audit log's tables in a SQLite file.

The audit log has its own file. Its commits therefore do not wait for the gateway's tables and do not count as changes
of them.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final

from gateway.state.audit_chain import (
    INTENT,
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
from gateway.state.migrations import migrate
from gateway.state.sqlite import connect, open_engine, prepare_file

FILE: Final = "audit.db"
WITHOUT_ENDED_INTENTS: Final = (
    f"(outcome <> '{INTENT}' OR NOT EXISTS (SELECT 1 FROM audit AS ended WHERE ended.tenant = audit.tenant"  # noqa: S608
    " AND ended.writer = audit.writer AND ended.intent = audit.number))"
)
"""Condition on the table `audit`: leaves out the intents of calls that have ended."""
MIGRATIONS: Final = Path(__file__).with_name("migrations") / "audit"


async def migrate_file(data_dir: Path) -> Path:
    """Open or create the file, migrate its tables and return its path.

    Raises `Fault(UNAVAILABLE)` when the file cannot be used. The message says what to do.
    """
    path = data_dir / FILE
    await asyncio.to_thread(prepare_file, path)
    engine = open_engine(path, "write")
    try:
        async with engine.connect() as connection:
            await migrate(connection, MIGRATIONS)
    finally:
        await engine.dispose()
    return path


class SqliteAuditTables:
    """`AuditTables` on SQLite: one connection, for one thread."""

    record_errors: tuple[type[Exception], ...] = (
        sqlite3.IntegrityError,
        sqlite3.ProgrammingError,
        sqlite3.InterfaceError,
        sqlite3.DataError,
        OverflowError,
        UnicodeError,
    )
    """Errors caused by the content of a single record. Any other error comes from the file or the disk."""
    storage_errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path, key: AuditKey, *, sync: bool = False) -> None:
        """If `sync`, a commit also survives a power failure."""
        self._connection = connect(path)
        self._key = key
        if sync:
            self._connection.execute("PRAGMA synchronous=FULL")

    def close(self) -> None:
        self._connection.close()

    def sanitize(self, row: Row) -> Row:
        """Return the row unchanged: SQLite stores every character."""
        return row

    def write(self, writer: str, records: Sequence[LinkedRow], heads: Mapping[str, ChainHead]) -> None:
        """Write the records and the new chain heads in one transaction."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for at in range(0, len(records), _RECORDS_PER_STATEMENT):
                chunk = records[at : at + _RECORDS_PER_STATEMENT]
                self._connection.execute(_insert(len(chunk)), [value for record in chunk for value in record])
            self._connection.executemany(_UPSERT_HEAD, [(tenant, writer, *head) for tenant, head in heads.items()])

    def prune(self, before: float, keep: int) -> int:
        """Delete records older than `before`, and the oldest in excess of `keep`. Returns how many were deleted."""
        (count,) = self._connection.execute("SELECT count(*) FROM audit").fetchone()
        if count > keep:
            sql = "SELECT at FROM audit ORDER BY at LIMIT 1 OFFSET ?"
            (oldest,) = self._connection.execute(sql, (count - keep,)).fetchone()
            before = max(before, oldest)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            expired = self._connection.execute(_SELECT_EXPIRED, (before,)).fetchall()
            pruned = 0
            for tenant, writer, sequence in expired:
                chain = (tenant, writer, sequence)
                (hash,) = self._connection.execute(_SELECT_HASH, chain).fetchone()
                pruned += self._connection.execute(_DELETE_EXPIRED, chain).rowcount
                seal = self._key.seal("pruned", *chain[:2], sequence, hash)
                self._connection.execute(_UPDATE_ANCHOR, (sequence, hash, seal, tenant, writer))
        return pruned

    # ---- reading ----

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield records, oldest first. With `limit`, only the newest ones."""
        parameters = {"tenant": tenant, "since": since, "principal": principal, "limit": -1 if limit is None else limit}
        rows = self._connection.execute(_SELECT_NEWEST if limit is not None else _SELECT_ALL, parameters)
        found: Any = reversed(rows.fetchall()) if limit is not None else rows
        return (dict(zip(LINKED_COLUMNS, row, strict=True)) for row in found)

    def unkeyed_heads(self) -> dict[Chain, ChainHead]:
        """The ends of the chains that earlier versions wrote without a key."""
        rows = self._connection.execute(_SELECT_UNKEYED)
        return {(tenant, writer): (sequence, hash) for tenant, writer, sequence, hash in rows}

    def verify(
        self, tenant: str | None = None, evidence: OutsideEvidence = OutsideEvidence()
    ) -> Iterator[ChainBreak | None]:
        """Check the chains of one tenant or of all. Yields as `find_breaks` does."""
        parameters = {"tenant": tenant}
        # One transaction: concurrent writes must not appear in only one of the two tables.
        self._connection.execute("BEGIN")
        try:
            anchors = {
                (row[0], row[1]): ChainAnchor(row[0], row[1], (row[2], row[3]), (row[4], row[5]), row[6])
                for row in self._connection.execute(_SELECT_ANCHORS, parameters)
            }
            with closing(self._connection.execute(_SELECT_CHAINED, parameters)) as rows:
                yield from find_breaks(self._key, anchors, rows, evidence, tenant)
        finally:
            self._connection.execute("ROLLBACK")


_COLUMNS: Final = ", ".join(LINKED_COLUMNS)
_RECORDS_PER_STATEMENT: Final = 999 // len(LINKED_COLUMNS)
"""Records per INSERT, within SQLite's limit of 999 parameters. Each statement releases the GIL and must get it back
from the event loop's thread: one statement per record slowed calls down more than the write itself."""


@cache
def _insert(count: int) -> str:
    values = ", ".join([f"({', '.join('?' * len(LINKED_COLUMNS))})"] * count)
    return f"INSERT INTO audit ({_COLUMNS}) VALUES {values}"  # noqa: S608 - constant columns


_UPSERT_HEAD: Final = (
    "INSERT INTO audit_chains (tenant, writer, last_sequence, last_hash) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (tenant, writer) DO UPDATE SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash"
)
_SELECT_EXPIRED: Final = "SELECT tenant, writer, max(sequence) FROM audit WHERE at < ? GROUP BY tenant, writer"
_SELECT_HASH: Final = "SELECT hash FROM audit WHERE tenant = ? AND writer = ? AND sequence = ?"
_DELETE_EXPIRED: Final = "DELETE FROM audit WHERE tenant = ? AND writer = ? AND sequence <= ?"
_UPDATE_ANCHOR: Final = (
    "UPDATE audit_chains SET pruned_sequence = ?, pruned_hash = ?, pruned_seal = ? WHERE tenant = ? AND writer = ?"
)
_SELECT_UNKEYED: Final = (
    "SELECT tenant, writer, last_sequence, last_hash FROM audit_chains WHERE last_hash NOT LIKE 'k%'"
)
_TENANT_FILTER: Final = "(:tenant IS NULL OR tenant = :tenant)"
_FILTER: Final = f"{_TENANT_FILTER} AND at >= :since AND (:principal IS NULL OR principal = :principal)"
_FILTER_LISTED: Final = f"{_FILTER} AND {WITHOUT_ENDED_INTENTS}"
_SELECT_ALL: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_FILTER} ORDER BY at, tenant, writer, sequence"  # noqa: S608
_SELECT_NEWEST: Final = (
    f"SELECT {_COLUMNS} FROM audit WHERE {_FILTER_LISTED} ORDER BY at DESC, sequence DESC LIMIT :limit"  # noqa: S608
)
_SELECT_CHAINED: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_TENANT_FILTER} ORDER BY tenant, writer, sequence"  # noqa: S608
_SELECT_ANCHORS: Final = (
    "SELECT tenant, writer, pruned_sequence, pruned_hash, last_sequence, last_hash, pruned_seal FROM audit_chains"  # noqa: S608
    f" WHERE {_TENANT_FILTER}"
)
