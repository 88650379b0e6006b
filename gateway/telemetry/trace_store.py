"""The last spans and log records, kept on this machine where no stack is at hand: SQLite of bounded size and age.

Written by a thread of its own; what finds no room in its queue is dropped and counted. Audit records are kept already,
by the audit log (`gateway/state/call_history.py` reads them).

What the process logs, for the store on this machine. The lines of calls are not among it: the audit log has them.
"""

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from gateway.telemetry.log import IDS, clean
from gateway.telemetry.span import Span

log = logging.getLogger("gatehouse.telemetry")

FILE: Final = "traces.db"

BOUND: Final = 4096

EVERY: Final = 0.5

_PRUNE_EVERY: Final = 60.0

_MEBIBYTE: Final = 1024 * 1024

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS spans (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, parent_id TEXT NOT NULL, correlation_id TEXT NOT NULL,
    tenant TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL,
    error TEXT, attributes TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS spans_trace ON spans (trace_id);
CREATE INDEX IF NOT EXISTS spans_correlation ON spans (correlation_id);
CREATE INDEX IF NOT EXISTS spans_started ON spans (started);
CREATE TABLE IF NOT EXISTS logs (
    started INTEGER NOT NULL, level TEXT NOT NULL, logger TEXT NOT NULL, message TEXT NOT NULL,
    correlation_id TEXT NOT NULL, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, cause TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS logs_started ON logs (started);
"""


class StoredSpan(Struct, frozen=True):
    """One span as it was kept. Times are Unix time in nanoseconds."""

    trace_id: str
    span_id: str
    parent_id: str
    correlation_id: str
    tenant: str
    name: str
    kind: str
    started: int
    ended: int
    error: str | None
    attributes: dict[str, Any]

    @property
    def is_work(self) -> bool:
        """Whether it is a piece of a module's work, and no call."""
        return self.kind == "internal" and "mcp.method.name" not in self.attributes

    @property
    def said(self) -> list[tuple[str, Any]]:
        """What the module said of such work, in few words."""
        prefix = f"{self.attributes.get('gatehouse.namespace', '')}."
        own = ((key.removeprefix(prefix), value) for key, value in self.attributes.items() if key.startswith(prefix))
        return [(name, value) for name, value in own if len(str(value)) <= _SHORT] if self.is_work else []


class StoredLogLine(Struct, frozen=True):
    """One log record as it was kept. `started` is Unix time in nanoseconds."""

    started: int
    level: str
    logger: str
    message: str
    correlation_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    cause: str = ""


class TraceStore:
    """`keep` belongs to the event loop's thread, `log` to any; both return at once."""

    def __init__(self, path: Path, max_mb: float, max_age: float, every: float = EVERY) -> None:
        self._path = path
        self._max_bytes = int(max_mb * _MEBIBYTE)
        self._max_age = max_age
        self._every = every
        self._waiting: deque[Span] = deque()
        self._lines: deque[StoredLogLine] = deque(maxlen=BOUND)
        self._wake = threading.Event()
        self._stopping = False
        self._prune_at = 0.0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def keep(self, spans: Sequence[Span]) -> None:
        if len(self._waiting) + len(spans) > BOUND:
            self.dropped += len(spans)
        else:
            self._waiting.extend(spans)

    def log(self, line: StoredLogLine) -> None:
        """In a flood the newest stay."""
        self._lines.append(line)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def close(self) -> None:
        """Write what waits, and stop."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    # ---- on the writer's thread ----

    def _run(self) -> None:
        try:
            with closing(_open(self._path)) as connection:
                while not self._stopping:
                    self._wake.wait(self._every)
                    self._write(connection)
                self._write(connection)
        except sqlite3.Error:
            log.exception("spans cannot be kept on this machine")

    def _write(self, connection: sqlite3.Connection) -> None:
        rows: list[tuple[Any, ...]] = []
        lines: list[tuple[Any, ...]] = []
        while self._waiting:
            rows.append(_row(self._waiting.popleft()))
        while self._lines:
            lines.append(astuple(self._lines.popleft()))
        try:
            if rows or lines:
                with connection:
                    connection.executemany(_INSERT_SPAN, rows)
                    connection.executemany(_INSERT_LINE, lines)
            if time.monotonic() >= self._prune_at:
                self._prune_at = time.monotonic() + _PRUNE_EVERY
                self.prune(connection)
        except sqlite3.Error:
            self.dropped += len(rows)
            log.exception("%d spans could not be kept on this machine", len(rows))

    def prune(self, connection: sqlite3.Connection) -> None:
        """Drop what is too old, then the oldest tenth until the rest is small enough."""
        with connection:
            for table in _TABLES:
                before = time.time_ns() - int(self._max_age * 1e9)
                connection.execute(f"DELETE FROM {table} WHERE started < ?", (before,))  # noqa: S608
        while _used(connection) > self._max_bytes:
            if not sum(_drop_a_tenth(connection, table) for table in _TABLES):
                return


def _drop_a_tenth(connection: sqlite3.Connection, table: str) -> int:
    with connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
        oldest = f"SELECT rowid FROM {table} ORDER BY started LIMIT ?"  # noqa: S608
        sql = f"DELETE FROM {table} WHERE rowid IN ({oldest})"  # noqa: S608
        return connection.execute(sql, (count // 10 + 1,)).rowcount


_TABLES: Final = ("spans", "logs")

_INSERT_SPAN: Final = f"INSERT INTO spans VALUES ({','.join('?' * len(StoredSpan.__struct_fields__))})"  # noqa: S608

_INSERT_LINE: Final = f"INSERT INTO logs VALUES ({','.join('?' * len(StoredLogLine.__struct_fields__))})"  # noqa: S608

_SHORT: Final = 24

_MOST: Final = 2000

"""Spans of one trace, and log records, that are given at a time."""


def find(path: Path, id: str, tenant: str | None = None) -> list[StoredSpan]:
    """All spans of the traces that a correlation id, or a trace id, belongs to; by their time. With a tenant, of that
    one alone: a client chooses its ids, and may choose another's."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        whose = "(?2 IS NULL OR tenant = ?2)"
        traces = f"SELECT trace_id FROM spans WHERE (correlation_id = ?1 OR trace_id = ?1) AND {whose}"  # noqa: S608
        sql = f"SELECT * FROM spans WHERE trace_id IN ({traces}) AND {whose} ORDER BY started LIMIT {_MOST}"  # noqa: S608
        return [_read(row) for row in connection.execute(sql, (id, tenant))]


def nested(spans: Sequence[StoredSpan]) -> Iterator[tuple[StoredSpan, int]]:
    """Parents before children, each with its depth. A span that is its own ancestor is shown once, as a root."""
    known, below = {span.span_id for span in spans}, dict[str, list[StoredSpan]]()
    for span in spans:
        below.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    shown: set[str] = set()
    waiting = [(span, 0) for span in reversed(below.get("", []))]
    left = list(spans)
    while waiting or left:
        if not waiting:
            waiting.append((left.pop(0), 0))
        span, depth = waiting.pop()
        if span.span_id not in shown:
            shown.add(span.span_id)
            yield span, depth
            waiting += [(child, depth + 1) for child in reversed(below.get(span.span_id, []))]


def lines(path: Path, *, spans: Sequence[str] = (), limit: int = 100) -> list[StoredLogLine]:
    """The newest log records, oldest first; with `spans`, those that were logged in one of them."""
    if not path.exists():
        return []
    among = f"WHERE span_id IN ({','.join('?' * len(spans[:500]))})" if spans else ""
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        sql = f"SELECT * FROM logs {among} ORDER BY started DESC LIMIT ?"  # noqa: S608
        return [StoredLogLine(*row) for row in connection.execute(sql, (*spans[:500], limit))][::-1]


def _read(row: tuple[Any, ...]) -> StoredSpan:
    known: tuple[Any, ...] = (*row[:-1], json.loads(row[-1]))
    return StoredSpan(**dict(zip(StoredSpan.__struct_fields__, known, strict=True)))


def _open(path: Path) -> sqlite3.Connection:
    # For its owner alone, from the first byte on.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=5.0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    # It is written to and hardly ever read: SQLite's own 2 MB of pages would be held for nothing.
    connection.execute("PRAGMA cache_size=-256")
    connection.executescript(_SCHEMA)
    return connection


def _used(connection: sqlite3.Connection) -> int:
    ((pages,), (free,), (size,)) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _row(span: Span) -> tuple[Any, ...]:
    place, attributes = span.place, dict(span.attributes)
    if span.link:
        attributes["link"] = span.link
    correlation, tenant = attributes.get("gatehouse.correlation_id", ""), attributes.get("gatehouse.tenant", "")
    ids = (place.trace_id, place.span_id, place.parent_id, correlation, tenant)
    return (*ids, span.name, span.kind, span.started, span.ended, span.error, json.dumps(attributes, default=str))


class StoreHandler(logging.Handler):
    """The store's own complaints are left out: they would feed on themselves."""

    def __init__(self, put: Callable[[StoredLogLine], None]) -> None:
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "gatehouse.telemetry":
            return
        cause = clean(_CAUSE.formatException(record.exc_info), 16_384) if record.exc_info else ""
        correlation, trace, span = (str(getattr(record, name, "") or "") for name in IDS)
        level, message = record.levelname.lower(), clean(record.getMessage())
        self._put(
            StoredLogLine(int(record.created * 1e9), level, record.name, message, correlation, trace, span, cause)
        )


_CAUSE: Final = logging.Formatter()
