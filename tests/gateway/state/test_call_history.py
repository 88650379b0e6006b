"""Recent calls and traffic, read from the audit log."""

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.state.audit_sqlite import FILE
from gateway.state.call_history import BUCKET_BOUNDS_US, CallFilter, CallHistory, percentile
from tests.gateway.state.audit_storage import AuditStorage

NOW = time.time()


def a_row(number: int, **overrides: Any) -> tuple[Any, ...]:
    values = {
        "at": NOW - number,
        "tenant": "acme",
        "principal": "acme/user:alice",
        "credential": "k",
        "correlation_id": f"cid-{number}",
        "method": "tools/call",
        "target": "lab.echo",
        "effect": 0,
        "decision": "allow",
        "policies": "p",
        "arguments_digest": "",
        "outcome": "ok",
        "duration_us": 1500,
        "trace_id": f"{number:032x}",
        "context": "{}",
        "approved": "",
        "actor": "",
        **overrides,
    }
    return tuple(values.values())


@pytest.fixture
def storage(tmp_path: Path, database_url: str | None) -> AuditStorage:
    return AuditStorage(tmp_path, database_url)


async def calls(storage: AuditStorage, *rows: tuple[Any, ...]) -> CallHistory:
    log = await storage.open_log()
    for row in rows:
        log.put(row)  # type: ignore[arg-type]
    await log.close()
    return CallHistory(storage.folder / FILE, storage.url)


async def ids(history: CallHistory, **criteria: Any) -> list[str]:
    return [each.correlation_id for each in await history.find(CallFilter(**criteria))]


async def test_calls_are_filtered_by_tenant_id_outcome_tool_principal_and_duration(storage: AuditStorage) -> None:
    history = await calls(
        storage,
        a_row(1),
        a_row(2, outcome="denied", decision="deny"),
        a_row(3, outcome="tool_error", target="lab.break_it"),
        a_row(4, tenant="other", principal="other/user:mallory"),
        a_row(5, duration_us=2_000_000, principal="acme/service:robot"),
    )
    assert await ids(history) == ["cid-1", "cid-2", "cid-3", "cid-4", "cid-5"]
    assert await ids(history, tenant="acme") == ["cid-1", "cid-2", "cid-3", "cid-5"]
    assert await ids(history, tenant="acme", id="cid-4") == []
    assert await ids(history, id=f"{2:032x}") == ["cid-2"]
    assert await ids(history, outcome="refused") == ["cid-2"]
    assert await ids(history, outcome="failed") == ["cid-3"]
    assert await ids(history, outcome="bad") == ["cid-2", "cid-3"]
    assert await ids(history, outcome="denied") == ["cid-2"]
    assert await ids(history, target="break_") == ["cid-3"]
    assert await ids(history, target="%") == []
    assert await ids(history, principal="robot") == ["cid-5"]
    assert await ids(history, slower_us=1_000_000) == ["cid-5"]
    assert await ids(history, before=NOW - 2, limit=1) == ["cid-3"]


async def test_traffic_of_a_tenant_is_counted_by_slot_outcome_and_duration(storage: AuditStorage) -> None:
    rows = [a_row(number, duration_us=900) for number in range(40)]
    rows += [a_row(100, outcome="denied"), a_row(101, outcome="timeout", duration_us=60_000_000)]
    rows += [a_row(5, tenant="other", target="theirs.tool"), a_row(9999)]
    history = await calls(storage, *rows)
    traffic = await history.traffic("acme", 3600, 60)
    assert (traffic.calls, sum(traffic.ok), sum(traffic.refused), sum(traffic.failed)) == (42, 40, 1, 1)
    assert len(traffic.ok) == 60
    assert traffic.histogram[-1] == 1
    assert 500 < traffic.percentile(0.5) <= 1000
    assert [(tool.target, tool.calls, tool.bad) for tool in traffic.tools] == [("lab.echo", 42, 2)]
    assert not traffic.cut
    assert (await history.traffic(None, 3600, 60)).calls == 43


async def test_missing_audit_log_has_no_calls(tmp_path: Path) -> None:
    history = CallHistory(tmp_path / "nowhere.db")
    assert await history.find(CallFilter()) == []
    assert (await history.traffic(None, 60, 6)).calls == 0


def test_percentile_lies_within_its_bucket() -> None:
    buckets = [0] * (len(BUCKET_BOUNDS_US) + 1)
    assert percentile(buckets, 0.95) == 0
    buckets[2] = 100
    assert BUCKET_BOUNDS_US[1] < percentile(buckets, 0.01) < percentile(buckets, 0.99) < BUCKET_BOUNDS_US[2]
