import asyncio
import stat
import time
from pathlib import Path
from typing import cast

import pytest

from gateway.errors import Fault, Kind
from gateway.state.audit import COLUMNS, FILE, Row
from gateway.state.postgres import PostgresPool
from tests.gateway.state.ledgers import Kept

NOW = time.time()


def record(number: int, tenant: str = "default") -> Row:
    return (
        NOW + number, tenant, f"{tenant}/user:alice", "key", f"id-{number}", "tools/call", "core.ping",
        2, "allow", "p1 p2", "d" * 64, "ok", 123, "t" * 32, "{}", "", "robot",
    )  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path, database_url: str | None) -> Kept:
    return Kept(tmp_path, database_url)


async def test_closing_commits_everything_in_order(kept: Kept) -> None:
    log = await kept.log()
    for number in range(1234):
        log.put(record(number))
    await log.close()
    assert await kept.rows() == [(f"id-{number}",) for number in range(1234)]
    assert await kept.rows(f"SELECT {', '.join(COLUMNS)} FROM audit ORDER BY at LIMIT 1") == [record(0)]
    if kept.url is None:
        assert stat.S_IMODE((kept.folder / FILE).stat().st_mode) == 0o600


async def test_a_record_is_committed_without_being_asked_for(kept: Kept) -> None:
    log = await kept.log()
    for number in range(3):  # each into a queue that was empty
        log.put(record(number))
        while len(await kept.rows()) <= number:
            await asyncio.sleep(0.005)
    assert await kept.rows() == [(f"id-{number}",) for number in range(3)]
    await log.close()


async def test_a_flush_returns_when_all_that_was_put_is_committed(kept: Kept) -> None:
    log = await kept.log()
    await log.flush()
    for number in range(1, 51):
        log.put(record(number))
        await log.flush()
        assert len(await kept.rows()) == number
    await log.close()


async def test_a_full_log_is_flushed_and_takes_more(kept: Kept) -> None:
    log = await kept.log()
    written = 0
    async with kept.locked():
        while not log.full:
            log.put(record(written))
            written += 1
    await log.flush()
    assert not log.full
    log.put(record(written))
    await log.close()
    assert len(await kept.rows()) == written + 1


async def test_the_queue_is_bounded_even_for_those_who_do_not_wait(kept: Kept) -> None:
    log = await kept.log()
    taken = 0
    async with kept.locked():
        refused = None
        while refused is None and taken < 100_000:
            try:
                log.put(record(taken))
                taken += 1
            except Fault as fault:
                refused = fault.kind
    assert refused is Kind.UNAVAILABLE
    await log.close()
    assert len(await kept.rows()) == taken


async def test_two_processes_write_one_log(kept: Kept) -> None:
    first, second = await kept.log(), await kept.log()
    for number in range(1000):
        first.put(record(number, "first"))
        second.put(record(number, "second"))
    await asyncio.gather(first.close(), second.close())
    assert await kept.rows("SELECT tenant, count(*) FROM audit GROUP BY tenant ORDER BY tenant") == [
        ("first", 1000),
        ("second", 1000),
    ]


async def test_a_record_that_cannot_be_written_takes_no_other_with_it(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    log = await kept.log()
    log.put(record(0))
    log.put(cast("Row", (*record(1)[:-1], "\ud800")))
    log.put(cast("Row", (*record(2)[:-1], None)))
    log.put(record(3))
    await log.close()
    assert await kept.rows() == [("id-0",), ("id-3",)]
    assert caplog.text.count("could not be written") == 2


async def test_a_disk_that_fails_fails_the_flush_and_loses_nothing_when_it_recovers(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    log = await kept.log()
    await kept.change("ALTER TABLE audit RENAME TO hidden")
    log.put(record(0))
    with pytest.raises(Fault) as caught:
        await log.flush()
    assert caught.value.kind is Kind.UNAVAILABLE
    await kept.change("ALTER TABLE hidden RENAME TO audit")
    log.put(record(1))
    await log.flush()
    assert await kept.rows() == [("id-0",), ("id-1",)]
    await log.close()
    with pytest.raises(Fault):
        log.put(record(2))


async def test_a_character_that_the_database_cannot_keep_costs_no_record(kept: Kept) -> None:
    log = await kept.log()
    log.put(cast("Row", (*record(0)[:-1], "a\0b")))
    await log.close()
    ((actor,),) = await kept.rows("SELECT actor FROM audit")
    assert actor == ("a\0b" if kept.url is None else "a\ufffdb")
    assert all(each is None for each in await asyncio.to_thread(lambda: list(kept.ledger().verify())))


async def test_a_lost_connection_loses_and_doubles_no_record(tmp_path: Path, postgres_url: str) -> None:
    kept = Kept(tmp_path, postgres_url)
    log = await kept.log()
    for number in range(300):
        log.put(record(number))
        if number % 100 == 50:
            await log.flush()
            killed = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gatehouse'"
            assert await kept.rows(f"{killed} AND datname = current_database()") == [(True,)]
    await log.close()
    assert await kept.rows() == [(f"id-{number}",) for number in range(300)]
    assert all(each is None for each in await asyncio.to_thread(lambda: list(kept.ledger().verify())))


async def test_a_query_of_the_records_that_forgets_the_tenant_returns_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    log = await Kept(tmp_path, postgres_url).log()
    for number in range(10):
        log.put(record(number, "ab"[number % 2]))
    await log.close()
    server = await PostgresPool.open(postgres_url, 1)
    connection = await server.connect()
    try:
        await connection.execute("SET search_path = gatehouse_audit")
        assert await connection.fetchval("SELECT count(*) FROM audit") == 0
        await connection.execute("SET gatehouse.tenant = 'a'")
        assert await connection.fetch("SELECT DISTINCT tenant FROM audit") == [("a",)]
        assert await connection.fetchval("SELECT count(*) FROM audit_chains") == 1
    finally:
        await connection.close()
        await server.close()
