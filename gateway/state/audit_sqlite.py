"""The audit log's tables: every statement of SQL that it needs, and the embedded file they are in.

It has a file of its own, so that its commits neither wait for the gateway's tables nor look like a change of them.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final

from gateway.state.audit_chain import LINKED, ChainAnchor, ChainBreak, Head, Linked, Row, breaks
from gateway.state.migrations import migrate
from gateway.state.sqlite import connect, open_engine, prepare_file

FILE: Final = "audit.db"
MIGRATIONS: Final = Path(__file__).with_name("migrations") / "audit"


async def prepare(data_dir: Path) -> Path:
    """Make or open the file and bring its tables up to date. Raises `Fault(UNAVAILABLE)` with what to do."""
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
    """One connection to it, for one thread. Raises `failed`, and `bad_record` for what a record is guilty of."""

    bad_record: tuple[type[Exception], ...] = (
        sqlite3.IntegrityError,
        sqlite3.ProgrammingError,
        sqlite3.InterfaceError,
        sqlite3.DataError,
        OverflowError,
        UnicodeError,
    )
    """What a single record can be guilty of; everything else is the file's or the disk's doing."""
    failed: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)

    def close(self) -> None:
        self._connection.close()

    def fit(self, row: Row) -> Row:
        """What of a record can be kept: all of it."""
        return row

    def write(self, writer: str, records: Sequence[Linked], heads: Mapping[str, Head]) -> None:
        """All of them, with where their chains end now, or none."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for at in range(0, len(records), _AT_ONCE):
                some = records[at : at + _AT_ONCE]
                self._connection.execute(_insert(len(some)), [value for record in some for value in record])
            self._connection.executemany(_HEAD, [(tenant, writer, *head) for tenant, head in heads.items()])

    def prune(self, before: float, keep: int) -> int:
        """Let go of records older than `before`, and of the oldest beyond `keep`; how many. The chains still hold."""
        (count,) = self._connection.execute("SELECT count(*) FROM audit").fetchone()
        if count > keep:
            sql = "SELECT at FROM audit ORDER BY at LIMIT 1 OFFSET ?"
            (oldest,) = self._connection.execute(sql, (count - keep,)).fetchone()
            before = max(before, oldest)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            due = self._connection.execute(_DUE, (before,)).fetchall()
            pruned = 0
            for tenant, writer, sequence in due:
                chain = (tenant, writer, sequence)
                (hash,) = self._connection.execute(_HASH, chain).fetchone()
                pruned += self._connection.execute(_PRUNE, chain).rowcount
                self._connection.execute(_ANCHOR, (sequence, hash, tenant, writer))
        return pruned

    # ---- reading ----

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Oldest first; with a limit, the newest so many."""
        named = {"tenant": tenant, "since": since, "principal": principal, "limit": -1 if limit is None else limit}
        rows = self._connection.execute(_NEWEST if limit is not None else _ALL, named)
        found: Any = reversed(rows.fetchall()) if limit is not None else rows
        return (dict(zip(LINKED, row, strict=True)) for row in found)

    def verify(self, tenant: str | None = None) -> Iterator[ChainBreak | None]:
        """See `breaks`: of one tenant, or of all."""
        named = {"tenant": tenant}
        # One transaction: what is written meanwhile is in both or in neither.
        self._connection.execute("BEGIN")
        try:
            anchors = {
                (who, writer): ChainAnchor(who, writer, (pruned, pruned_hash), (last, last_hash))
                for who, writer, pruned, pruned_hash, last, last_hash in self._connection.execute(_ANCHORS, named)
            }
            with closing(self._connection.execute(_CHAINED, named)) as rows:
                yield from breaks(anchors, rows)
        finally:
            self._connection.execute("ROLLBACK")


_COLUMNS: Final = ", ".join(LINKED)
_AT_ONCE: Final = 999 // len(LINKED)
"""Records in one statement, within any SQLite's bound of parameters. Each statement lets the event loop's thread run
and then waits for it: one for each record cost calls more than the writing itself."""


@cache
def _insert(count: int) -> str:
    values = ", ".join([f"({', '.join('?' * len(LINKED))})"] * count)
    return f"INSERT INTO audit ({_COLUMNS}) VALUES {values}"  # noqa: S608 - our own columns


_HEAD: Final = (
    "INSERT INTO audit_chains (tenant, writer, last_sequence, last_hash) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (tenant, writer) DO UPDATE SET last_sequence = excluded.last_sequence, last_hash = excluded.last_hash"
)
_DUE: Final = "SELECT tenant, writer, max(sequence) FROM audit WHERE at < ? GROUP BY tenant, writer"
_HASH: Final = "SELECT hash FROM audit WHERE tenant = ? AND writer = ? AND sequence = ?"
_PRUNE: Final = "DELETE FROM audit WHERE tenant = ? AND writer = ? AND sequence <= ?"
_ANCHOR: Final = "UPDATE audit_chains SET pruned_sequence = ?, pruned_hash = ? WHERE tenant = ? AND writer = ?"
_OF: Final = "(:tenant IS NULL OR tenant = :tenant)"
_WANTED: Final = f"{_OF} AND at >= :since AND (:principal IS NULL OR principal = :principal)"
_ALL: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_WANTED} ORDER BY at, tenant, writer, sequence"  # noqa: S608
_NEWEST: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_WANTED} ORDER BY at DESC, sequence DESC LIMIT :limit"  # noqa: S608
_CHAINED: Final = f"SELECT {_COLUMNS} FROM audit WHERE {_OF} ORDER BY tenant, writer, sequence"  # noqa: S608
_ANCHORS: Final = (
    f"SELECT tenant, writer, pruned_sequence, pruned_hash, last_sequence, last_hash FROM audit_chains WHERE {_OF}"  # noqa: S608
)
