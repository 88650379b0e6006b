"""The audit log: records are queued without waiting, then linked into chains and committed in groups by a thread."""

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from gateway.errors import Fault, Kind
from gateway.state.audit_chain import COLUMNS, AuditChains, ChainBreak, Head, Linked, Row
from gateway.state.audit_sqlite import FILE, SqliteAuditTables, prepare

__all__ = ["COLUMNS", "FILE", "AuditLog", "Row"]

_GROUP: Final = 500
_GATHER: Final = 0.05
_FULL: Final = 10_000
_BOUND: Final = 20_000
_RETRY: Final = 1.0
_PRUNE_EVERY: Final = 3600.0
_DAY: Final = 86400.0

_log = logging.getLogger(__name__)


class AuditTableWriter(Protocol):
    """Where the records are kept, for one thread: `AuditFile`, or `AuditTables` on PostgreSQL."""

    @property
    def failed(self) -> tuple[type[Exception], ...]: ...

    @property
    def bad_record(self) -> tuple[type[Exception], ...]: ...

    def fit(self, row: Row) -> Row: ...

    def write(self, writer: str, records: Sequence[Linked], heads: Mapping[str, Head]) -> None: ...

    def prune(self, before: float, keep: int) -> int: ...

    def records(
        self, tenant: str | None = None, since: float = 0.0, limit: int | None = None, principal: str | None = None
    ) -> Iterator[dict[str, Any]]: ...

    def verify(self, tenant: str | None = None) -> Iterator[ChainBreak | None]: ...

    def close(self) -> None: ...


async def open_ledger(data_dir: Path, url: str | None = None) -> AuditTableWriter:
    """In the PostgreSQL database at `url`, or in a file in this folder; its tables are up to date.

    Raises `Fault(UNAVAILABLE)` with what to do when that fails.
    """
    if url is None:
        return SqliteAuditTables(await prepare(data_dir))
    from gateway.state.audit_postgres import PostgresAuditTables, prepare_tables

    await prepare_tables(url)
    return PostgresAuditTables(url)


class AuditLog:
    """Open it with `AuditLog.open`. `put` belongs to the event loop's thread; nothing put is dropped.

    Whoever finds it `full` awaits `flush` before going on. A caller that must not answer before its record is safe
    awaits `flush` every time.
    """

    def __init__(self, ledger: AuditTableWriter, keep_days: float, max_records: int) -> None:
        self._keep_days = keep_days
        self._max_records = max_records
        self._chains = AuditChains(secrets.token_hex(8))
        self._rows: deque[Row] = deque()
        self._put = 0
        self._written = 0
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._listeners: list[Callable[[Sequence[Linked]], None]] = []
        self._loop = asyncio.get_running_loop()
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._ledger = ledger
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls, data_dir: Path, keep_days: float = 365.0, max_records: int = 10_000_000, url: str | None = None
    ) -> "AuditLog":
        """Make or open the log in the database at `url`, or in this folder. Raises as `open_ledger` does.

        Records older than `keep_days`, and the oldest beyond `max_records`, are let go once an hour.
        """
        return cls(await open_ledger(data_dir, url), keep_days, max_records)

    def on_commit(self, listener: Callable[[Sequence[Linked]], None]) -> None:
        """Call `listener` with records once they are committed: on the writer's thread, and not for long."""
        self._listeners.append(listener)

    @property
    def waiting(self) -> int:
        """Records that are not committed yet."""
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _FULL

    def put(self, row: Row) -> None:
        """Queue a record. Raises `Fault(UNAVAILABLE)` when twice as many wait as make the log `full`."""
        if self._stopping or len(self._rows) >= _BOUND:
            raise _unavailable()
        self._rows.append(row)
        self._put += 1
        # Asked after the append: a writer that has just found the queue empty is woken, one still emptying it is not.
        waiting = len(self._rows)
        if waiting == 1:
            self._work.set()
        elif waiting == _GROUP:
            self._hurry.set()

    async def flush(self) -> None:
        """Return when all that was put so far is committed. Raises `Fault(UNAVAILABLE)` when it cannot be."""
        if self._written >= self._put:
            return
        flushed: asyncio.Future[None] = self._loop.create_future()
        self._flushes.append((self._put, flushed))
        self._hurry.set()
        self._work.set()
        await flushed

    async def close(self) -> None:
        """Commit all that was put, and stop."""
        self._stopping = True
        self._hurry.set()
        self._work.set()
        await asyncio.to_thread(self._thread.join)

    # ---- on the writer's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        next_prune = time.monotonic()
        while self._rows or not self._stopping:
            if time.monotonic() >= next_prune and not self._stopping:
                next_prune = time.monotonic() + _PRUNE_EVERY
                self._prune()
            self._work.wait(_PRUNE_EVERY)
            self._hurry.wait(_GATHER)
            self._work.clear()
            self._hurry.clear()
            self._write_due(len(self._rows))
            self._tell(None)
        self._ledger.close()

    def _write_due(self, due: int) -> None:
        """What comes meanwhile gathers for the next time: written at once, it would make many small groups."""
        while due:
            group = [self._rows.popleft() for _ in range(min(_GROUP, due))]
            self._write(group)
            self._written += len(group)
            due -= len(group)
        if self._rows:
            self._work.set()
        if len(self._rows) >= _GROUP:
            self._hurry.set()

    def _prune(self) -> None:
        try:
            pruned = self._ledger.prune(time.time() - self._keep_days * _DAY, self._max_records)
        except self._ledger.failed:
            _log.warning("old audit records could not be let go; it is tried again", exc_info=True)
            return
        if pruned:
            _log.info("%d old audit records were let go", pruned)

    def _write(self, group: list[Row]) -> None:
        while True:
            try:
                linked, heads = self._chains.linked(map(self._ledger.fit, group))
                self._ledger.write(self._chains.writer, linked, heads)
                self._chains.advance(heads)
                self._tell_listeners(linked)
            except self._ledger.bad_record:
                self._write_singly(group)
            except self._ledger.failed:
                _log.exception("%d audit records could not be committed", len(group))
                self._tell(_unavailable())
                if not self._stopping:
                    self._hurry.clear()
                    self._hurry.wait(_RETRY)
                    continue
            return

    def _tell_listeners(self, linked: Sequence[Linked]) -> None:
        for listener in self._listeners:
            try:
                listener(linked)
            except Exception:  # what is committed must not be written again, nor the writer die
                _log.exception("a listener to audit records failed")

    def _write_singly(self, group: list[Row]) -> None:
        if len(group) > 1:
            for row in group:
                self._write([row])
        else:
            _log.exception("an audit record could not be written", extra={"correlation_id": group[0][4]})

    def _tell(self, fault: Fault | None) -> None:
        if self._flushes:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._settle, self._written, fault)

    # ---- on the loop again -------------------------------------------------------------------------------------

    def _settle(self, written: int, fault: Fault | None) -> None:
        while self._flushes and (fault is not None or self._flushes[0][0] <= written):
            _, flushed = self._flushes.popleft()
            if flushed.done():
                continue
            if fault is not None:
                flushed.set_exception(fault)
            else:
                flushed.set_result(None)


def _unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The audit log cannot be written. Try again.", retry_after=1.0)
