"""The last calls, as they are read from the audit log."""

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.state.audit_sqlite import FILE
from gateway.state.call_history import BOUNDS, CallFilter, CallHistory, percentile
from tests.gateway.state.ledgers import Kept

NOW = time.time()


def a_row(number: int, **more: Any) -> tuple[Any, ...]:
    given = {
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
        **more,
    }
    return tuple(given.values())


@pytest.fixture
def house(tmp_path: Path, database_url: str | None) -> Kept:
    return Kept(tmp_path, database_url)


async def calls(house: Kept, *rows: tuple[Any, ...]) -> CallHistory:
    log = await house.log()
    for row in rows:
        log.put(row)  # type: ignore[arg-type]
    await log.close()
    return CallHistory(house.folder / FILE, house.url)


async def ids(book: CallHistory, **wanted: Any) -> list[str]:
    return [each.correlation_id for each in await book.find(CallFilter(**wanted))]


async def test_calls_are_found_by_tenant_id_outcome_tool_person_and_slowness(house: Kept) -> None:
    book = await calls(
        house,
        a_row(1),
        a_row(2, outcome="denied", decision="deny"),
        a_row(3, outcome="tool_error", target="lab.break_it"),
        a_row(4, tenant="other", principal="other/user:mallory"),
        a_row(5, duration_us=2_000_000, principal="acme/service:robot"),
    )
    assert await ids(book) == ["cid-1", "cid-2", "cid-3", "cid-4", "cid-5"]
    assert await ids(book, tenant="acme") == ["cid-1", "cid-2", "cid-3", "cid-5"]
    assert await ids(book, tenant="acme", id="cid-4") == []
    assert await ids(book, id=f"{2:032x}") == ["cid-2"]
    assert await ids(book, outcome="refused") == ["cid-2"]
    assert await ids(book, outcome="failed") == ["cid-3"]
    assert await ids(book, outcome="bad") == ["cid-2", "cid-3"]
    assert await ids(book, outcome="denied") == ["cid-2"]
    assert await ids(book, target="break_") == ["cid-3"]
    assert await ids(book, target="%") == []
    assert await ids(book, principal="robot") == ["cid-5"]
    assert await ids(book, slower_us=1_000_000) == ["cid-5"]
    assert await ids(book, before=NOW - 2, limit=1) == ["cid-3"]


async def test_traffic_is_counted_by_slot_class_and_duration_of_one_tenant(house: Kept) -> None:
    rows = [a_row(number, duration_us=900) for number in range(40)]
    rows += [a_row(100, outcome="denied"), a_row(101, outcome="timeout", duration_us=60_000_000)]
    rows += [a_row(5, tenant="other", target="theirs.tool"), a_row(9999)]
    book = await calls(house, *rows)
    seen = await book.traffic("acme", 3600, 60)
    assert (seen.calls, sum(seen.ok), sum(seen.refused), sum(seen.failed)) == (42, 40, 1, 1)
    assert len(seen.ok) == 60
    assert seen.histogram[-1] == 1
    assert 500 < seen.percentile(0.5) <= 1000
    assert [(tool.target, tool.calls, tool.bad) for tool in seen.tools] == [("lab.echo", 42, 2)]
    assert not seen.cut
    assert (await book.traffic(None, 3600, 60)).calls == 43


async def test_where_nothing_was_kept_there_were_no_calls(tmp_path: Path) -> None:
    book = CallHistory(tmp_path / "nowhere.db")
    assert await book.find(CallFilter()) == []
    assert (await book.traffic(None, 60, 6)).calls == 0


def test_a_percentile_lies_within_its_bar() -> None:
    bars = [0] * (len(BOUNDS) + 1)
    assert percentile(bars, 0.95) == 0
    bars[2] = 100
    assert BOUNDS[1] < percentile(bars, 0.01) < percentile(bars, 0.99) < BOUNDS[2]
