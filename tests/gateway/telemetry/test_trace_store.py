"""The last spans on this machine: found again by their ids, bounded by size and age, never in anybody's way."""

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
from gateway.telemetry.trace_store import BOUND, FILE, StoreHandler, TraceStore, find, lines


def a_span(number: int, parent: str = "", trace: int = 1, **more: Any) -> Span:
    now = time.time_ns()
    given: dict[str, Any] = {"started": now, "ended": now + 1000, **more}
    about = [("gatehouse.correlation_id", f"cid-{number}"), ("gatehouse.tenant", "acme"), ("text", "x" * 500)]
    return Span(
        "tools/call lab.echo",
        "server",
        TracePosition(f"{trace:032x}", f"{number:016x}", parent),
        attributes=about,
        **given,
    )


async def kept(path: Path, spans: list[Span], max_mb: float = 64, max_age: float = 3600) -> TraceStore:
    store = TraceStore(path / FILE, max_mb, max_age, every=60)
    store.keep(spans)
    await store.close()
    return store


async def test_a_call_is_found_by_its_correlation_id_with_its_whole_trace(tmp_path: Path) -> None:
    await kept(tmp_path, [a_span(1), a_span(2, parent=f"{1:016x}", error="why"), a_span(3, trace=2)])
    found = find(tmp_path / FILE, "cid-1")
    assert [span.correlation_id for span in found] == ["cid-1", "cid-2"]
    assert found == find(tmp_path / FILE, "cid-2") == find(tmp_path / FILE, f"{1:032x}")
    assert (found[1].error, found[1].parent_id, found[1].tenant) == ("why", f"{1:016x}", "acme")
    assert find(tmp_path / FILE, "nobody") == []
    assert find(tmp_path / "nowhere.db", "cid-1") == []


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    await kept(tmp_path, [a_span(1)])
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


async def test_what_is_old_or_too_much_is_dropped_oldest_first(tmp_path: Path) -> None:
    old = time.time_ns() - int(7200e9)
    await kept(tmp_path, [a_span(1, started=old, ended=old), a_span(2)])
    await kept(tmp_path, [a_span(number, started=time.time_ns() + number) for number in range(10, 1000)])
    store = await kept(tmp_path, [])
    assert find(tmp_path / FILE, "cid-1") == []
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        store._max_bytes = 200_000
        store.prune(connection)
        (count,) = connection.execute("SELECT count(*) FROM spans").fetchone()
        (newest,) = connection.execute("SELECT count(*) FROM spans WHERE correlation_id = 'cid-999'").fetchone()
    assert 10 < count < 500
    assert newest == 1


async def test_a_burst_waits_within_bounds_and_the_rest_is_counted(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / FILE, 64, 3600, every=60)
    for number in range(BOUND + 10):
        store.keep([a_span(number)])
    assert store.dropped >= 9
    await store.close()


async def test_a_file_that_is_no_database_costs_the_spans_alone_and_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text("this is no database " * 100)
    store = await kept(tmp_path, [a_span(1)])
    store.keep([a_span(2)])
    assert caplog.messages == ["spans cannot be kept on this machine"]
    assert (tmp_path / FILE).read_text() == "this is no database " * 100


async def test_of_a_trace_that_two_tenants_share_each_is_given_its_own_spans(tmp_path: Path) -> None:
    theirs = [("gatehouse.correlation_id", "cid-1"), ("gatehouse.tenant", "other")]
    now = time.time_ns()
    shared = Span("tools/call b.x", "server", TracePosition(f"{1:032x}", f"{9:016x}", ""), now, now + 1, theirs)
    await kept(tmp_path, [a_span(1), shared])
    assert len(find(tmp_path / FILE, "cid-1")) == 2
    assert [span.tenant for span in find(tmp_path / FILE, "cid-1", "acme")] == ["acme"]
    assert [span.tenant for span in find(tmp_path / FILE, f"{1:032x}", "other")] == ["other"]
    assert find(tmp_path / FILE, "cid-1", "third") == []


async def test_what_is_logged_is_kept_with_its_ids_and_cause_and_without_secrets(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / FILE, 64, 3600, every=60)
    handler = StoreHandler(store.log)
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
    first, second = lines(tmp_path / FILE)
    assert (first.level, first.message, first.span_id, first.cause) == ("warning", "as Bearer …", "s1", "")
    assert "RuntimeError: why" in second.cause
    assert lines(tmp_path / FILE, spans=["s1"]) == [first]
    assert lines(tmp_path / "nowhere.db") == []
