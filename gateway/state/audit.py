"""The audit log. Callers queue records without waiting; a thread links them into hash chains and commits batches.

The audit stage writes to it through `AuditLog`. The `gatehouse audit` command reads it through `open_audit_tables`.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from gateway.errors import Fault, Kind
from gateway.state.audit_anchors import AnchorFiles, anchor_token
from gateway.state.audit_chain import (
    COLUMNS,
    AuditChains,
    AuditKey,
    Chain,
    ChainBreak,
    ChainHead,
    LinkedRow,
    NumberedRow,
    OutsideEvidence,
    Row,
    WriterAnchor,
)
from gateway.state.audit_sqlite import FILE, SqliteAuditTables, migrate_file

__all__ = ["AUDIT_SECRET", "COLUMNS", "FILE", "AuditLog", "Row"]

AUDIT_SECRET: Final = "pepper"  # noqa: S105 - the name of the secret
"""The secret that the key of the hashes is derived from: it is never replaced, since all API keys depend on it."""

_BATCH_SIZE: Final = 500
_BATCH_SECONDS: Final = 0.05
_HIGH_WATER_MARK: Final = 10_000
_MAX_QUEUED: Final = 20_000
_RETRY_SECONDS: Final = 1.0
_PRUNE_INTERVAL: Final = 3600.0
_DAY_SECONDS: Final = 86400.0
_ANCHOR_SECONDS: Final = 1.0
_PUBLISH_SECONDS: Final = 60.0
_MAX_INTEGER: Final = 2**63 - 1

_log = logging.getLogger(__name__)


class AuditTables(Protocol):
    """The tables of the audit log, for use by one thread: `SqliteAuditTables` or `PostgresAuditTables`."""

    @property
    def storage_errors(self) -> tuple[type[Exception], ...]:
        """Errors of the file, the disk or the server. The write can be retried."""
        ...

    @property
    def record_errors(self) -> tuple[type[Exception], ...]:
        """Errors caused by the content of a single record. A retry fails again."""
        ...

    def sanitize(self, row: Row) -> Row:
        """Replace characters that the database cannot store."""
        ...

    def write(self, writer: str, records: Sequence[LinkedRow], heads: Mapping[str, ChainHead]) -> None:
        """Write the records and the new chain heads in one transaction."""
        ...

    def prune(self, before: float, keep: int) -> int:
        """Delete records older than `before`, and the oldest in excess of `keep`. Returns how many were deleted.

        The remaining chains still verify.
        """
        ...

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield records, oldest first. With `limit`, only the newest ones."""
        ...

    def unkeyed_heads(self) -> Mapping[Chain, ChainHead]:
        """The ends of the chains that earlier versions wrote without a key."""
        ...

    def verify(
        self, tenant: str | None = None, evidence: OutsideEvidence = OutsideEvidence()
    ) -> Iterator[ChainBreak | None]:
        """Check the chains of one tenant or of all. Yields as `find_breaks` does."""
        ...

    def close(self) -> None: ...


async def open_audit_tables(
    data_dir: Path, key: AuditKey, url: str | None = None, *, sync: bool = False
) -> AuditTables:
    """Open the tables in the PostgreSQL database at `url`, or in a file in `data_dir`, and migrate them.

    Raises `Fault(UNAVAILABLE)` when the database cannot be used. The message says what to do.
    """
    if url is None:
        return SqliteAuditTables(await migrate_file(data_dir), key, sync=sync)
    # asyncpg is an optional extra and slow to import.
    from gateway.state.audit_postgres import PostgresAuditTables, migrate_tables

    await migrate_tables(url)
    return PostgresAuditTables(url, key)


class AuditLog:
    """Write side of the audit log. Open it with `AuditLog.open`. A queued record is never dropped.

    Records are numbered when they are queued. The numbers and the ends of the chains are kept outside the database, so
    that records which a crash or an attacker removed are missed.

    Call `put` on the event loop's thread only. A caller that finds `is_full` awaits `flush` before it continues. A
    caller that must not answer before its record is committed awaits `flush` after every `put`.
    """

    def __init__(
        self, tables: AuditTables, key: AuditKey, files: AnchorFiles, keep_days: float, max_records: int
    ) -> None:
        self._keep_days = keep_days
        self._max_records = max_records
        self._key = key
        self._files = files
        self._chains = AuditChains(secrets.token_hex(8), key)
        self._counter = files.open_counter(self._chains.writer)
        self._anchored_at = 0.0
        self._published_at = time.monotonic()
        self._unpublished: set[str] = set()
        self._anchor_listeners: list[Callable[[str], None]] = []
        self.is_failing = False
        """Whether the last commit failed."""
        self._rows: deque[NumberedRow] = deque()
        self._queued = 0
        self._written = 0
        self._committed = 0
        """Number of the last committed record."""
        self._anchored = 0
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._listeners: list[Callable[[Sequence[LinkedRow]], None]] = []
        self._loop = asyncio.get_running_loop()
        self._has_records = threading.Event()
        self._commit_now = threading.Event()
        self._stopping = False
        self._tables = tables
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        secret: bytes,
        keep_days: float = 365.0,
        max_records: int = 10_000_000,
        url: str | None = None,
        *,
        sync: bool = False,
    ) -> "AuditLog":
        """Open or create the log in the database at `url`, or in `data_dir`. Raises as `open_audit_tables` does.

        `secret` keys the hashes. If `sync`, a commit to a file also survives a power failure. Once an hour, records
        older than `keep_days` and the oldest in excess of `max_records` are deleted.
        """
        key = AuditKey(secret)
        files = AnchorFiles(data_dir, key)
        tables = await open_audit_tables(data_dir, key, url, sync=sync)
        await asyncio.to_thread(files.note_unkeyed, tables.unkeyed_heads)
        return cls(tables, key, files, keep_days, max_records)

    def on_anchor(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the ends of the chains as one word, once a minute while records are written and at the
        end. It runs on the writer thread and must return quickly."""
        self._anchor_listeners.append(listener)

    def on_commit(self, listener: Callable[[Sequence[LinkedRow]], None]) -> None:
        """Call `listener` with each committed batch. It runs on the writer thread and must return quickly."""
        self._listeners.append(listener)

    @property
    def waiting(self) -> int:
        """Number of records that are not committed yet."""
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether the queue has reached the length at which callers should await `flush`."""
        return len(self._rows) >= _HIGH_WATER_MARK

    def put(self, row: Row, intent: int = 0) -> int:
        """Queue a record and return its number. `intent` is the number of the record that announced the call.

        Raises `Fault(UNAVAILABLE)` when the log is closed or its queue is at its hard limit.
        """
        if self._stopping or len(self._rows) >= _MAX_QUEUED:
            raise _unavailable()
        self._queued = number = self._queued + 1
        self._counter.set(number)
        self._rows.append((number, intent, row))
        # Read after the append: this wakes a writer that found the queue empty, but not one that is still draining it.
        waiting = len(self._rows)
        if waiting == 1:
            self._has_records.set()
        elif waiting == _BATCH_SIZE:
            self._commit_now.set()
        return number

    async def commit_intent(self, row: Row) -> int:
        """Commit a record before its call is sent, and return its number.

        Raises `Fault(UNAVAILABLE)` when it cannot be committed. After a failed commit the queue is retried first, so
        that refused calls do not fill the queue.
        """
        if self.is_failing:
            await self.flush()
        number = self.put(row)
        await self.flush()
        return number

    async def flush(self) -> None:
        """Wait until every record put so far is committed. Raises `Fault(UNAVAILABLE)` when the commit fails."""
        if self._written >= self._queued:
            return
        flushed: asyncio.Future[None] = self._loop.create_future()
        self._flushes.append((self._queued, flushed))
        self._commit_now.set()
        self._has_records.set()
        await flushed

    async def close(self) -> None:
        """Commit every queued record and stop the writer thread."""
        self._stopping = True
        self._commit_now.set()
        self._has_records.set()
        await asyncio.to_thread(self._thread.join)

    # ---- writer thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        next_prune = time.monotonic()
        while self._rows or not self._stopping:
            if time.monotonic() >= next_prune and not self._stopping:
                next_prune = time.monotonic() + _PRUNE_INTERVAL
                self._prune()
            self._has_records.wait(_PRUNE_INTERVAL if self._anchored == self._committed else _ANCHOR_SECONDS)
            self._commit_now.wait(_BATCH_SECONDS)
            self._has_records.clear()
            self._commit_now.clear()
            self._write_queued(len(self._rows))
            self._report_progress(None)
            self._anchor(at_once=False)
        self._anchor(at_once=True)
        self._counter.close()
        self._tables.close()

    def _anchor(self, *, at_once: bool) -> None:
        """Keep the ends of the chains outside the database: in a file once a second, by the listeners once a minute."""
        now = time.monotonic()
        if self._committed != self._anchored and (at_once or now - self._anchored_at >= _ANCHOR_SECONDS):
            self._anchored_at, self._anchored = now, self._committed
            try:
                self._files.write(self._make_anchor())
            except OSError:
                _log.warning(
                    "audit log: writing the anchor file failed; next attempt with the next records", exc_info=True
                )
        if self._unpublished and (at_once or now - self._published_at >= _PUBLISH_SECONDS):
            self._published_at = now
            self._publish()

    def _publish(self) -> None:
        anchor = self._make_anchor()
        token = anchor_token(self._key, replace(anchor, heads={each: anchor.heads[each] for each in self._unpublished}))
        self._unpublished.clear()
        for listener in self._anchor_listeners:
            try:
                listener(token)
            except Exception:  # the writer thread must survive
                _log.exception("audit log: a listener of anchors failed")

    def _make_anchor(self) -> WriterAnchor:
        return WriterAnchor(self._chains.writer, self._committed, round(time.time(), 3), self._chains.heads)

    def _write_queued(self, remaining: int) -> None:
        """Write only the records queued so far. Later ones wait for the next round, which avoids small batches."""
        while remaining:
            batch = [self._rows.popleft() for _ in range(min(_BATCH_SIZE, remaining))]
            self._write(batch)
            self._written += len(batch)
            remaining -= len(batch)
        if self._rows:
            self._has_records.set()
        if len(self._rows) >= _BATCH_SIZE:
            self._commit_now.set()

    def _prune(self) -> None:
        try:
            before = time.time() - self._keep_days * _DAY_SECONDS
            pruned = self._tables.prune(before, self._max_records)
            self._files.prune(before)
        except self._tables.storage_errors:
            _log.warning("audit log: deleting old records failed; next attempt in %d s", _PRUNE_INTERVAL, exc_info=True)
            return
        if pruned:
            _log.info("audit log: deleted %d old records", pruned)

    def _write(self, batch: list[NumberedRow]) -> None:
        sanitize = self._tables.sanitize
        while True:
            try:
                linked_rows, heads = self._chains.link((number, intent, sanitize(row)) for number, intent, row in batch)
                self._tables.write(self._chains.writer, linked_rows, heads)
                self._chains.advance(heads)
                self._committed = batch[-1][0]
                self._unpublished.update(heads)
                self.is_failing = False
                self._notify_listeners(linked_rows)
            except self._tables.record_errors:
                self._write_individually(batch)
            except self._tables.storage_errors as exc:
                # No traceback: the log repeats this until the disk or the server is back.
                failed = "audit log: commit of %d records failed; retry in %g s: %s"
                _log.error(failed, len(batch), _RETRY_SECONDS, exc)
                self.is_failing = True
                self._report_progress(_unavailable())
                if not self._stopping:
                    self._commit_now.clear()
                    self._commit_now.wait(_RETRY_SECONDS)
                    continue
            return

    def _notify_listeners(self, linked_rows: Sequence[LinkedRow]) -> None:
        for listener in self._listeners:
            try:
                listener(linked_rows)
            except Exception:  # the records are committed: do not retry the write, and keep the writer thread alive
                _log.exception("audit log: a commit listener failed; the records are committed")

    def _write_individually(self, batch: list[NumberedRow]) -> None:
        if len(batch) > 1:
            for row in batch:
                self._write([row])
            return
        number, intent, row = batch[0]
        if (storable := _make_storable(row)) != row:
            self._write([(number, intent, storable)])
            return
        _log.exception("audit log: record rejected by the database and dropped", extra={"correlation_id": row[4]})

    def _report_progress(self, fault: Fault | None) -> None:
        if self._flushes:
            with suppress(RuntimeError):  # the event loop is closed: no flush is waiting
                self._loop.call_soon_threadsafe(self._resolve_flushes, self._written, fault)

    # ---- event loop --------------------------------------------------------------------------------------------

    def _resolve_flushes(self, written: int, fault: Fault | None) -> None:
        while self._flushes and (fault is not None or self._flushes[0][0] <= written):
            _, flushed = self._flushes.popleft()
            if flushed.done():
                continue
            if fault is not None:
                flushed.set_exception(fault)
            else:
                flushed.set_result(None)


def _make_storable(row: Row) -> Row:
    """Replace what no database stores: lone surrogates, and numbers that are out of range."""
    values: Any = tuple(
        value.encode("utf-8", "replace").decode() if isinstance(value, str)
        else max(-_MAX_INTEGER, min(value, _MAX_INTEGER)) if isinstance(value, int)
        else value
        for value in row
    )  # fmt: skip
    return values


def _unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The audit log cannot be written. Try again.", retry_after=1.0)
