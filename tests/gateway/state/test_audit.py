import asyncio
import stat
import time
from pathlib import Path
from typing import cast

import pytest

from gateway.errors import Fault, Kind
from gateway.state.audit import COLUMNS, FILE, Row
from gateway.state.postgres import PostgresPool
from tests.gateway.state.audit_storage import AuditStorage

NOW = time.time()


def record(number: int, tenant: str = "default") -> Row:
    return (
        NOW + number, tenant, f"{tenant}/user:alice", "key", f"id-{number}", "tools/call", "core.ping",
        2, "allow", "p1 p2", "d" * 64, "ok", 123, "t" * 32, "{}", "", "robot",
    )  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path, database_url: str | None) -> AuditStorage:
    return AuditStorage(tmp_path, database_url)


async def test_close_commits_all_records_in_order(storage: AuditStorage) -> None:
    log = await storage.open_log()
    for number in range(1234):
        log.put(record(number))
    await log.close()
    assert await storage.query() == [(f"id-{number}",) for number in range(1234)]
    assert await storage.query(f"SELECT {', '.join(COLUMNS)} FROM audit ORDER BY at LIMIT 1") == [record(0)]
    if storage.url is None:
        assert stat.S_IMODE((storage.folder / FILE).stat().st_mode) == 0o600


async def test_record_is_committed_without_flush(storage: AuditStorage) -> None:
    log = await storage.open_log()
    for number in range(3):  # each into an empty queue
        log.put(record(number))
        while len(await storage.query()) <= number:
            await asyncio.sleep(0.005)
    assert await storage.query() == [(f"id-{number}",) for number in range(3)]
    await log.close()


async def test_flush_waits_until_all_queued_records_are_committed(storage: AuditStorage) -> None:
    log = await storage.open_log()
    await log.flush()
    for number in range(1, 51):
        log.put(record(number))
        await log.flush()
        assert len(await storage.query()) == number
    await log.close()


async def test_full_log_accepts_records_again_after_flush(storage: AuditStorage) -> None:
    log = await storage.open_log()
    written = 0
    async with storage.locked():
        while not log.is_full:
            log.put(record(written))
            written += 1
    await log.flush()
    assert not log.is_full
    log.put(record(written))
    await log.close()
    assert len(await storage.query()) == written + 1


async def test_put_is_rejected_when_queue_reaches_its_hard_limit(storage: AuditStorage) -> None:
    log = await storage.open_log()
    taken = 0
    async with storage.locked():
        refused = None
        while refused is None and taken < 100_000:
            try:
                log.put(record(taken))
                taken += 1
            except Fault as fault:
                refused = fault.kind
    assert refused is Kind.UNAVAILABLE
    await log.close()
    assert len(await storage.query()) == taken


async def test_two_logs_write_to_the_same_tables(storage: AuditStorage) -> None:
    first, second = await storage.open_log(), await storage.open_log()
    for number in range(1000):
        first.put(record(number, "first"))
        second.put(record(number, "second"))
    await asyncio.gather(first.close(), second.close())
    assert await storage.query("SELECT tenant, count(*) FROM audit GROUP BY tenant ORDER BY tenant") == [
        ("first", 1000),
        ("second", 1000),
    ]


async def test_record_rejected_by_database_does_not_affect_other_records(
    storage: AuditStorage, caplog: pytest.LogCaptureFixture
) -> None:
    log = await storage.open_log()
    log.put(record(0))
    log.put(cast("Row", (*record(1)[:-1], "\ud800")))
    log.put(cast("Row", (*record(2)[:-1], None)))
    log.put(record(3))
    await log.close()
    assert await storage.query() == [("id-0",), ("id-1",), ("id-3",)], "a lone surrogate is replaced"
    assert caplog.text.count("rejected by the database") == 1


async def test_failed_commit_fails_flush_and_is_retried_without_loss(
    storage: AuditStorage, caplog: pytest.LogCaptureFixture
) -> None:
    log = await storage.open_log()
    await storage.execute("ALTER TABLE audit RENAME TO hidden")
    log.put(record(0))
    with pytest.raises(Fault) as caught:
        await log.flush()
    assert caught.value.kind is Kind.UNAVAILABLE
    await storage.execute("ALTER TABLE hidden RENAME TO audit")
    log.put(record(1))
    await log.flush()
    assert await storage.query() == [("id-0",), ("id-1",)]
    await log.close()
    with pytest.raises(Fault):
        log.put(record(2))


async def test_record_with_nul_character_is_stored_and_verifies(storage: AuditStorage) -> None:
    log = await storage.open_log()
    log.put(cast("Row", (*record(0)[:-1], "a\0b")))
    await log.close()
    ((actor,),) = await storage.query("SELECT actor FROM audit")
    assert actor == ("a\0b" if storage.url is None else "a\ufffdb")
    assert all(break_ is None for break_ in await asyncio.to_thread(lambda: list(storage.open_tables().verify())))


async def test_lost_connection_neither_loses_nor_duplicates_records(tmp_path: Path, postgres_url: str) -> None:
    storage = AuditStorage(tmp_path, postgres_url)
    log = await storage.open_log()
    for number in range(300):
        log.put(record(number))
        if number % 100 == 50:
            await log.flush()
            killed = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gatehouse'"
            assert await storage.query(f"{killed} AND datname = current_database()") == [(True,)]
    await log.close()
    assert await storage.query() == [(f"id-{number}",) for number in range(300)]
    assert all(break_ is None for break_ in await asyncio.to_thread(lambda: list(storage.open_tables().verify())))


async def test_query_without_tenant_returns_no_audit_records(tmp_path: Path, postgres_url: str) -> None:
    log = await AuditStorage(tmp_path, postgres_url).open_log()
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
