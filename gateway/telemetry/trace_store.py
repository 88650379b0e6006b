"""Local store of recent spans and log records, for installations without a telemetry backend.

The store is a SQLite file of bounded size and age. A separate thread writes it; items that do not fit into its queue
are dropped and counted. The console and `gatehouse trace` read it. Finished calls are not stored here: they are in the
audit log, which `gateway.state.call_history` reads.
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

from gateway.telemetry.log import ID_FIELDS, clean
from gateway.telemetry.span import Span

log = logging.getLogger("gatehouse.telemetry")
FILE: Final = "traces.db"
MAX_QUEUED: Final = 4096
WRITE_INTERVAL: Final = 0.5
_PRUNE_INTERVAL: Final = 60.0
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
    """One stored span. Times are Unix time in nanoseconds."""

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
        """Whether this is a work span of a backend, not a call."""
        return self.kind == "internal" and "mcp.method.name" not in self.attributes

    @property
    def short_attributes(self) -> list[tuple[str, Any]]:
        """The short attributes that the backend set on a work span."""
        prefix = f"{self.attributes.get('gatehouse.namespace', '')}."
        own = ((key.removeprefix(prefix), value) for key, value in self.attributes.items() if key.startswith(prefix))
        return [(name, value) for name, value in own if len(str(value)) <= _MAX_SHORT_LENGTH] if self.is_work else []


class StoredLogLine(Struct, frozen=True):
    """One stored log record. `started` is Unix time in nanoseconds."""

    started: int
    level: str
    logger: str
    message: str
    correlation_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    cause: str = ""


class TraceStore:
    """Queues spans and log records for the store. Queueing returns immediately.

    Call `add_spans` on the event loop's thread; `add_log_line` is thread-safe.
    """

    def __init__(self, path: Path, max_mb: float, max_age: float, interval: float = WRITE_INTERVAL) -> None:
        self._path = path
        self._max_bytes = int(max_mb * _MEBIBYTE)
        self._max_age = max_age
        self._interval = interval
        self._spans: deque[Span] = deque()
        self._log_lines: deque[StoredLogLine] = deque(maxlen=MAX_QUEUED)
        self._wake = threading.Event()
        self._stopping = False
        self._next_prune = 0.0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add_spans(self, spans: Sequence[Span]) -> None:
        if len(self._spans) + len(spans) > MAX_QUEUED:
            self.dropped += len(spans)
        else:
            self._spans.extend(spans)

    def add_log_line(self, line: StoredLogLine) -> None:
        """Queue a log record. A full queue drops the oldest."""
        self._log_lines.append(line)

    @property
    def waiting(self) -> int:
        """Number of spans that are not written yet."""
        return len(self._spans)

    async def close(self) -> None:
        """Write the queued items and stop."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    # ---- writer thread ----

    def _run(self) -> None:
        try:
            with closing(_open(self._path)) as connection:
                while not self._stopping:
                    self._wake.wait(self._interval)
                    self._write(connection)
                self._write(connection)
        except sqlite3.Error:
            log.exception("trace store: the file cannot be used; spans are not stored")

    def _write(self, connection: sqlite3.Connection) -> None:
        rows: list[tuple[Any, ...]] = []
        lines: list[tuple[Any, ...]] = []
        while self._spans:
            rows.append(_row(self._spans.popleft()))
        while self._log_lines:
            lines.append(astuple(self._log_lines.popleft()))
        try:
            if rows or lines:
                with connection:
                    connection.executemany(_INSERT_SPAN, rows)
                    connection.executemany(_INSERT_LINE, lines)
            if time.monotonic() >= self._next_prune:
                self._next_prune = time.monotonic() + _PRUNE_INTERVAL
                self.prune(connection)
        except sqlite3.Error:
            self.dropped += len(rows)
            log.exception("trace store: writing %d spans failed; they are dropped", len(rows))

    def prune(self, connection: sqlite3.Connection) -> None:
        """Delete rows that are too old, then the oldest tenth until the file is within its size limit."""
        with connection:
            for table in _TABLES:
                before = time.time_ns() - int(self._max_age * 1e9)
                connection.execute(f"DELETE FROM {table} WHERE started < ?", (before,))  # noqa: S608
        while _used_bytes(connection) > self._max_bytes:
            if not sum(_delete_oldest_tenth(connection, table) for table in _TABLES):
                return


def _delete_oldest_tenth(connection: sqlite3.Connection, table: str) -> int:
    with connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
        oldest = f"SELECT rowid FROM {table} ORDER BY started LIMIT ?"  # noqa: S608
        sql = f"DELETE FROM {table} WHERE rowid IN ({oldest})"  # noqa: S608
        return connection.execute(sql, (count // 10 + 1,)).rowcount


_TABLES: Final = ("spans", "logs")
_INSERT_SPAN: Final = f"INSERT INTO spans VALUES ({','.join('?' * len(StoredSpan.__struct_fields__))})"  # noqa: S608
_INSERT_LINE: Final = f"INSERT INTO logs VALUES ({','.join('?' * len(StoredLogLine.__struct_fields__))})"  # noqa: S608
_MAX_SHORT_LENGTH: Final = 24
_MAX_ROWS: Final = 2000
"""Maximum number of spans that one lookup returns."""


def find_spans(path: Path, id: str, tenant: str | None = None) -> list[StoredSpan]:
    """Return all spans of the traces that contain a correlation id or trace id, by start time.

    With `tenant`, only that tenant's spans are returned: clients choose their ids and may reuse those of others.
    """
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        tenant_filter = "(?2 IS NULL OR tenant = ?2)"
        traces = f"SELECT trace_id FROM spans WHERE (correlation_id = ?1 OR trace_id = ?1) AND {tenant_filter}"  # noqa: S608
        sql = f"SELECT * FROM spans WHERE trace_id IN ({traces}) AND {tenant_filter} ORDER BY started LIMIT {_MAX_ROWS}"  # noqa: S608
        return [_to_stored_span(row) for row in connection.execute(sql, (id, tenant))]


def find_last_calls(path: Path, limit: int) -> list[StoredSpan]:
    """Return the spans of the calls that ended last, the latest first."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        sql = "SELECT * FROM spans WHERE kind = 'server' ORDER BY ended DESC LIMIT ?"
        return [_to_stored_span(row) for row in connection.execute(sql, (limit,))]


def in_tree_order(spans: Sequence[StoredSpan]) -> Iterator[tuple[StoredSpan, int]]:
    """Yield parents before children, each with its depth. A span that is its own ancestor is yielded as a root."""
    values, children = {span.span_id for span in spans}, dict[str, list[StoredSpan]]()
    for span in spans:
        children.setdefault(span.parent_id if span.parent_id in values else "", []).append(span)
    visited: set[str] = set()
    stack = [(span, 0) for span in reversed(children.get("", []))]
    unvisited = list(spans)
    while stack or unvisited:
        if not stack:
            stack.append((unvisited.pop(0), 0))
        span, depth = stack.pop()
        if span.span_id not in visited:
            visited.add(span.span_id)
            yield span, depth
            stack += [(child, depth + 1) for child in reversed(children.get(span.span_id, []))]


def find_log_lines(path: Path, *, spans: Sequence[str] = (), limit: int = 100) -> list[StoredLogLine]:
    """Return the newest log records, oldest first. With `spans`, only those logged within these spans."""
    if not path.exists():
        return []
    where = f"WHERE span_id IN ({','.join('?' * len(spans[:500]))})" if spans else ""
    with closing(sqlite3.connect(path, timeout=5.0)) as connection:
        sql = f"SELECT * FROM logs {where} ORDER BY started DESC LIMIT ?"  # noqa: S608
        return [StoredLogLine(*row) for row in connection.execute(sql, (*spans[:500], limit))][::-1]


def _to_stored_span(row: tuple[Any, ...]) -> StoredSpan:
    values: tuple[Any, ...] = (*row[:-1], json.loads(row[-1]))
    return StoredSpan(**dict(zip(StoredSpan.__struct_fields__, values, strict=True)))


def _open(path: Path) -> sqlite3.Connection:
    # Created with mode 0600, so that it is never readable by others.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=5.0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    # The store is rarely read, so the default page cache of 2 MB would be wasted.
    connection.execute("PRAGMA cache_size=-256")
    connection.executescript(_SCHEMA)
    return connection


def _used_bytes(connection: sqlite3.Connection) -> int:
    ((pages,), (free,), (size,)) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _row(span: Span) -> tuple[Any, ...]:
    position, attributes = span.position, dict(span.attributes)
    if span.link:
        attributes["link"] = span.link
    correlation, tenant = attributes.get("gatehouse.correlation_id", ""), attributes.get("gatehouse.tenant", "")
    ids = (position.trace_id, position.span_id, position.parent_id, correlation, tenant)
    return (*ids, span.name, span.kind, span.started, span.ended, span.error, json.dumps(attributes, default=str))


class StoreHandler(logging.Handler):
    """Stores what the process logs, except the records of the store itself, which would loop."""

    def __init__(self, write: Callable[[StoredLogLine], None]) -> None:
        super().__init__()
        self._write_line = write

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "gatehouse.telemetry":
            return
        cause = clean(_EXCEPTION_FORMATTER.formatException(record.exc_info), 16_384) if record.exc_info else ""
        correlation, trace, span = (str(getattr(record, name, "") or "") for name in ID_FIELDS)
        level, message = record.levelname.lower(), clean(record.getMessage())
        self._write_line(
            StoredLogLine(int(record.created * 1e9), level, record.name, message, correlation, trace, span, cause)
        )


_EXCEPTION_FORMATTER: Final = logging.Formatter()
