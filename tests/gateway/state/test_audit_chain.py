"""The chain holds however long it is and whatever was let go, and shows the first record that was touched."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.state.audit import AuditTableWriter
from gateway.state.audit_chain import LINKED, AuditChains, ChainBreak, Row
from tests.gateway.state.ledgers import Kept
from tests.gateway.state.test_audit import record

DAY = 86400.0


@pytest.fixture
def house(tmp_path: Path, database_url: str | None) -> Kept:
    return Kept(tmp_path, database_url)


@pytest.fixture
def kept(house: Kept) -> Iterator[AuditTableWriter]:
    ledger = house.ledger()
    yield ledger
    ledger.close()


def write(file: AuditTableWriter, chains: AuditChains, *rows: Row) -> None:
    linked, heads = chains.linked(rows)
    file.write(chains.writer, linked, heads)
    chains.advance(heads)


def aged(number: int, days: float, tenant: str = "default") -> Row:
    return (time.time() - days * DAY, *record(number, tenant)[1:])


def broken(file: AuditTableWriter, tenant: str | None = None) -> list[ChainBreak]:
    return [each for each in file.verify(tenant) if each is not None]


def change(house: Kept, sql: str) -> None:
    asyncio.run(house.change(sql))


def test_what_was_written_in_groups_by_two_writers_verifies(kept: AuditTableWriter) -> None:
    one, two = AuditChains("one"), AuditChains("two")
    for number in range(0, 50, 5):
        write(kept, one, *(record(each, "ab"[each % 2]) for each in range(number, number + 5)))
        write(kept, two, record(number, "a"))
    assert broken(kept) == []
    assert len(list(kept.verify("a"))) < len(list(kept.verify()))


def test_one_byte_changed_in_any_column_shows_the_first_broken_record(kept: AuditTableWriter, house: Kept) -> None:
    columns = [name for name in LINKED if name not in ("sequence", "tenant", "writer")]
    for column in columns:
        write(kept, AuditChains(f"of {column}"), *(record(number) for number in range(20)))
        other = f"{column} + 1" if column in ("at", "effect", "duration_us") else f"{column} || '1'"
        chain = f"writer = 'of {column}'"
        change(house, f"UPDATE audit SET {column} = {other} WHERE {chain} AND sequence IN (7, 12)")
    found = broken(kept)
    assert {(each.tenant, each.writer, each.sequence) for each in found} == {
        ("default", f"of {column}", 7) for column in columns
    }
    assert all("changed" in each.why for each in found)


@pytest.mark.parametrize(
    ("sql", "sequence", "why"),
    [
        ("DELETE FROM audit WHERE sequence = 5", 6, "is missing"),
        ("DELETE FROM audit WHERE sequence > 17", 18, "all after it are missing"),
        ("DELETE FROM audit", 1, "all after it are missing"),
        ("DELETE FROM audit_chains", 1, "no known chain"),
        ("UPDATE audit SET sequence = sequence + 100 WHERE sequence = 20", 120, "is missing"),
        ("UPDATE audit_chains SET last_hash = 'x'", 21, "missing"),
    ],
)
def test_a_record_taken_away_or_moved_is_found(
    kept: AuditTableWriter, house: Kept, sql: str, sequence: int, why: str
) -> None:
    write(kept, AuditChains("one"), *(record(number) for number in range(20)))
    change(house, sql)
    (first,) = broken(kept)
    assert first.sequence == sequence
    assert why in first.why


def test_a_record_moved_to_another_tenant_is_found(kept: AuditTableWriter, house: Kept) -> None:
    write(kept, AuditChains("one"), *(record(number, "ab"[number % 2]) for number in range(20)))
    change(house, "UPDATE audit SET tenant = 'c' WHERE tenant = 'a' AND sequence = 10")
    assert {(each.tenant, each.sequence) for each in broken(kept)} == {("a", 10), ("c", 10)}


def test_what_is_old_is_let_go_and_the_rest_still_verifies(kept: AuditTableWriter, house: Kept) -> None:
    one, two = AuditChains("one"), AuditChains("two")
    write(kept, one, *(aged(number, 10 - number, "ab"[number % 2]) for number in range(10)))
    write(kept, two, aged(0, 9), aged(1, 8))
    assert kept.prune(time.time() - 4.5 * DAY, 1000) == 8
    assert broken(kept) == []
    write(kept, one, aged(11, 0, "a"))
    assert broken(kept) == []
    assert kept.prune(time.time() - 4.5 * DAY, 1000) == 0
    change(house, "DELETE FROM audit WHERE sequence = (SELECT min(sequence) FROM audit WHERE tenant = 'b')")
    assert [each.tenant for each in broken(kept)][:1], "what is missing after the anchor is found"


def test_the_oldest_beyond_the_most_are_let_go(kept: AuditTableWriter) -> None:
    chains = AuditChains("one")
    write(kept, chains, *(aged(number, 100 - number) for number in range(100)))
    assert kept.prune(0, 30) == 70
    assert [each["correlation_id"] for each in kept.records()] == [f"id-{number}" for number in range(70, 100)]
    assert broken(kept) == []


def test_records_are_read_by_tenant_person_and_time(kept: AuditTableWriter) -> None:
    write(kept, AuditChains("one"), *(aged(number, 10 - number, "ab"[number % 2]) for number in range(10)))
    assert len(list(kept.records("a"))) == 5
    assert [each["correlation_id"] for each in kept.records(limit=2)] == ["id-8", "id-9"]
    assert len(list(kept.records(since=time.time() - 3.5 * DAY))) == 3
    assert list(kept.records(principal="nobody")) == []


async def test_a_log_that_is_opened_lets_go_of_what_is_old(house: Kept) -> None:
    first = await house.log()
    for number in range(10):
        first.put(aged(number, 10 - number))
    await first.close()
    second = await house.log(keep_days=4.5)
    async with asyncio.timeout(10):
        while len(await house.rows()) != 4:
            await asyncio.sleep(0.01)
    second.put(record(99))
    await second.close()
    assert await asyncio.to_thread(lambda: broken(house.ledger())) == []
    assert len(await house.rows("SELECT DISTINCT writer FROM audit")) == 2


async def test_a_record_that_cannot_be_written_leaves_no_gap(house: Kept) -> None:
    log = await house.log()
    for row in (record(0), (*record(1)[:-1], "\ud800"), record(2)):
        log.put(row)  # type: ignore[arg-type]
    await log.close()
    assert await house.rows("SELECT sequence FROM audit ORDER BY sequence") == [(1,), (2,)]
    assert await asyncio.to_thread(lambda: broken(house.ledger())) == []
