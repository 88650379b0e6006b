"""The local trace store: lookup by id, limits on size and age, and a non-blocking queue."""

import logging
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.contract.trace_position import TracePosition
from gateway.telemetry.span import Span
from gateway.telemetry.trace_store import FILE, MAX_QUEUED, StoreHandler, TraceStore, find_log_lines, find_spans


def a_span(number: int, parent: str = "", trace: int = 1, **options: Any) -> Span:
    now = time.time_ns()
    times: dict[str, Any] = {"started": now, "ended": now + 1000, **options}
    attributes = [("gatehouse.correlation_id", f"cid-{number}"), ("gatehouse.tenant", "acme"), ("text", "x" * 500)]
    return Span(
        "tools/call lab.echo",
        "server",
        TracePosition(f"{trace:032x}", f"{number:016x}", parent),
        attributes=attributes,
        **times,
    )


async def store_spans(path: Path, spans: list[Span], max_mb: float = 64, max_age: float = 3600) -> TraceStore:
    store = TraceStore(path / FILE, max_mb, max_age, interval=60)
    store.add_spans(spans)
    await store.close()
    return store


async def test_trace_is_found_by_correlation_id_or_trace_id(tmp_path: Path) -> None:
    await store_spans(tmp_path, [a_span(1), a_span(2, parent=f"{1:016x}", error="why"), a_span(3, trace=2)])
    found = find_spans(tmp_path / FILE, "cid-1")
    assert [span.correlation_id for span in found] == ["cid-1", "cid-2"]
    assert found == find_spans(tmp_path / FILE, "cid-2") == find_spans(tmp_path / FILE, f"{1:032x}")
    assert (found[1].error, found[1].parent_id, found[1].tenant) == ("why", f"{1:016x}", "acme")
    assert find_spans(tmp_path / FILE, "unknown") == []
    assert find_spans(tmp_path / "nowhere.db", "cid-1") == []


async def test_file_is_private_to_its_owner(tmp_path: Path) -> None:
    await store_spans(tmp_path, [a_span(1)])
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


async def test_old_and_surplus_spans_are_deleted_oldest_first(tmp_path: Path) -> None:
    old = time.time_ns() - int(7200e9)
    await store_spans(tmp_path, [a_span(1, started=old, ended=old), a_span(2)])
    await store_spans(tmp_path, [a_span(number, started=time.time_ns() + number) for number in range(10, 1000)])
    store = await store_spans(tmp_path, [])
    assert find_spans(tmp_path / FILE, "cid-1") == []
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        store._max_bytes = 200_000
        store.prune(connection)
        (count,) = connection.execute("SELECT count(*) FROM spans").fetchone()
        (newest,) = connection.execute("SELECT count(*) FROM spans WHERE correlation_id = 'cid-999'").fetchone()
    assert 10 < count < 500
    assert newest == 1


async def test_spans_above_the_queue_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / FILE, 64, 3600, interval=60)
    for number in range(MAX_QUEUED + 10):
        store.add_spans([a_span(number)])
    assert store.dropped >= 9
    await store.close()


async def test_invalid_file_is_logged_and_left_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_text("this is no database " * 100)
    store = await store_spans(tmp_path, [a_span(1)])
    store.add_spans([a_span(2)])
    assert caplog.messages == ["trace store: the file cannot be used; spans are not stored"]
    assert (tmp_path / FILE).read_text() == "this is no database " * 100


async def test_each_tenant_sees_only_its_own_spans_of_a_shared_trace(tmp_path: Path) -> None:
    theirs = [("gatehouse.correlation_id", "cid-1"), ("gatehouse.tenant", "other")]
    now = time.time_ns()
    shared = Span("tools/call b.x", "server", TracePosition(f"{1:032x}", f"{9:016x}", ""), now, now + 1, theirs)
    await store_spans(tmp_path, [a_span(1), shared])
    assert len(find_spans(tmp_path / FILE, "cid-1")) == 2
    assert [span.tenant for span in find_spans(tmp_path / FILE, "cid-1", "acme")] == ["acme"]
    assert [span.tenant for span in find_spans(tmp_path / FILE, f"{1:032x}", "other")] == ["other"]
    assert find_spans(tmp_path / FILE, "cid-1", "third") == []


async def test_log_records_are_stored_with_ids_and_traceback_without_secrets(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / FILE, 64, 3600, interval=60)
    handler = StoreHandler(store.add_log_line)
    logger = logging.getLogger("gatehouse.somewhere")
    logger.addHandler(handler)
    try:
        logger.warning("as Bearer s3cret-value", extra={"correlation_id": "c", "trace_id": "t", "span_id": "s1"})
        try:
            raise RuntimeError("why")
        except RuntimeError:
            logger.exception("failed")
        logging.getLogger("gatehouse.telemetry").addHandler(handler)
        logging.getLogger("gatehouse.telemetry").error("its own")
    finally:
        logger.removeHandler(handler)
        logging.getLogger("gatehouse.telemetry").removeHandler(handler)
    await store.close()
    first, second = find_log_lines(tmp_path / FILE)
    assert (first.level, first.message, first.span_id, first.cause) == ("warning", "as Bearer …", "s1", "")
    assert "RuntimeError: why" in second.cause
    assert find_log_lines(tmp_path / FILE, spans=["s1"]) == [first]
    assert find_log_lines(tmp_path / "nowhere.db") == []
