"""Chains verify at any length and after pruning, and verification reports the first changed record."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.state.audit import AuditTables
from gateway.state.audit_chain import LINKED_COLUMNS, AuditChains, ChainBreak, Row
from tests.gateway.state.audit_storage import KEY, AuditStorage
from tests.gateway.state.test_audit import record

DAY = 86400.0


@pytest.fixture
def storage(tmp_path: Path, database_url: str | None) -> AuditStorage:
    return AuditStorage(tmp_path, database_url)


@pytest.fixture
def tables(storage: AuditStorage) -> Iterator[AuditTables]:
    opened = storage.open_tables()
    yield opened
    opened.close()


def write(file: AuditTables, chains: AuditChains, *rows: Row) -> None:
    first = sum(head[0] for head in chains.heads.values()) + 1
    linked, heads = chains.link((first + place, 0, row) for place, row in enumerate(rows))
    file.write(chains.writer, linked, heads)
    chains.advance(heads)


def aged(number: int, days: float, tenant: str = "default") -> Row:
    return (time.time() - days * DAY, *record(number, tenant)[1:])


def breaks_in(file: AuditTables, tenant: str | None = None) -> list[ChainBreak]:
    return [item for item in file.verify(tenant) if item is not None]


def tamper(storage: AuditStorage, sql: str) -> None:
    asyncio.run(storage.execute(sql))


def test_records_of_two_writers_written_in_batches_verify(tables: AuditTables) -> None:
    one, two = AuditChains("one", KEY), AuditChains("two", KEY)
    for number in range(0, 50, 5):
        write(tables, one, *(record(item, "ab"[item % 2]) for item in range(number, number + 5)))
        write(tables, two, record(number, "a"))
    assert breaks_in(tables) == []
    assert len(list(tables.verify("a"))) < len(list(tables.verify()))


def test_change_in_any_column_is_reported_at_first_changed_record(tables: AuditTables, storage: AuditStorage) -> None:
    columns = [name for name in LINKED_COLUMNS if name not in ("sequence", "tenant", "writer")]
    for column in columns:
        write(tables, AuditChains(f"of {column}", KEY), *(record(number) for number in range(20)))
        other = f"{column} + 1" if column in ("number", "intent", "at", "effect", "duration_us") else f"{column} || '1'"
        chain = f"writer = 'of {column}'"
        tamper(storage, f"UPDATE audit SET {column} = {other} WHERE {chain} AND sequence IN (7, 12)")
    found = breaks_in(tables)
    assert {(item.tenant, item.writer, item.sequence) for item in found} == {
        ("default", f"of {column}", 7) for column in columns
    }
    assert all("changed" in item.reason for item in found)


@pytest.mark.parametrize(
    ("sql", "sequence", "reason"),
    [
        ("DELETE FROM audit WHERE sequence = 5", 6, "is missing"),
        ("DELETE FROM audit WHERE sequence > 17", 18, "all after it are missing"),
        ("DELETE FROM audit", 1, "all after it are missing"),
        ("DELETE FROM audit_chains", 1, "no known chain"),
        ("UPDATE audit SET sequence = sequence + 100 WHERE sequence = 20", 120, "is missing"),
        ("UPDATE audit_chains SET last_hash = 'x'", 21, "missing"),
    ],
)
def test_deleted_or_moved_record_is_detected(
    tables: AuditTables, storage: AuditStorage, sql: str, sequence: int, reason: str
) -> None:
    write(tables, AuditChains("one", KEY), *(record(number) for number in range(20)))
    tamper(storage, sql)
    (first,) = breaks_in(tables)
    assert first.sequence == sequence
    assert reason in first.reason


def test_record_moved_to_another_tenant_is_detected(tables: AuditTables, storage: AuditStorage) -> None:
    write(tables, AuditChains("one", KEY), *(record(number, "ab"[number % 2]) for number in range(20)))
    tamper(storage, "UPDATE audit SET tenant = 'c' WHERE tenant = 'a' AND sequence = 10")
    assert {(item.tenant, item.sequence) for item in breaks_in(tables)} == {("a", 10), ("c", 10)}


def test_remaining_records_verify_after_old_ones_are_pruned(tables: AuditTables, storage: AuditStorage) -> None:
    one, two = AuditChains("one", KEY), AuditChains("two", KEY)
    write(tables, one, *(aged(number, 10 - number, "ab"[number % 2]) for number in range(10)))
    write(tables, two, aged(0, 9), aged(1, 8))
    assert tables.prune(time.time() - 4.5 * DAY, 1000) == 8
    assert breaks_in(tables) == []
    write(tables, one, aged(11, 0, "a"))
    assert breaks_in(tables) == []
    assert tables.prune(time.time() - 4.5 * DAY, 1000) == 0
    tamper(storage, "DELETE FROM audit WHERE sequence = (SELECT min(sequence) FROM audit WHERE tenant = 'b')")
    assert [item.tenant for item in breaks_in(tables)][:1], "a record missing after the anchor is detected"


def test_oldest_records_above_maximum_are_pruned(tables: AuditTables) -> None:
    chains = AuditChains("one", KEY)
    write(tables, chains, *(aged(number, 100 - number) for number in range(100)))
    assert tables.prune(0, 30) == 70
    assert [item["correlation_id"] for item in tables.records()] == [f"id-{number}" for number in range(70, 100)]
    assert breaks_in(tables) == []


def test_records_are_filtered_by_tenant_principal_and_time(tables: AuditTables) -> None:
    write(tables, AuditChains("one", KEY), *(aged(number, 10 - number, "ab"[number % 2]) for number in range(10)))
    assert len(list(tables.records("a"))) == 5
    assert [item["correlation_id"] for item in tables.records(limit=2)] == ["id-8", "id-9"]
    assert len(list(tables.records(since=time.time() - 3.5 * DAY))) == 3
    assert list(tables.records(principal="unknown")) == []


async def test_opened_log_prunes_old_records(storage: AuditStorage) -> None:
    first = await storage.open_log()
    for number in range(10):
        first.put(aged(number, 10 - number))
    await first.close()
    second = await storage.open_log(keep_days=4.5)
    async with asyncio.timeout(10):
        while len(await storage.query()) != 4:
            await asyncio.sleep(0.01)
    second.put(record(99))
    await second.close()
    assert await asyncio.to_thread(lambda: breaks_in(storage.open_tables())) == []
    assert len(await storage.query("SELECT DISTINCT writer FROM audit")) == 2


async def test_record_that_cannot_be_stored_as_it_is_leaves_no_gap(storage: AuditStorage) -> None:
    log = await storage.open_log()
    for row in (record(0), (*record(1)[:-1], "\ud800"), record(2)):
        log.put(row)  # type: ignore[arg-type]
    await log.close()
    assert await storage.query("SELECT sequence FROM audit ORDER BY sequence") == [(1,), (2,), (3,)]
    assert await asyncio.to_thread(lambda: breaks_in(storage.open_tables())) == []
