import asyncio
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.errors import Fault, Kind
from gateway.state.audit import COLUMNS, FILE, AuditLog, Row

NOW = time.time()


def record(number: int, tenant: str = "default") -> Row:
    return (
        NOW + number, tenant, f"{tenant}/user:alice", "key", f"id-{number}", "tools/call", "core.ping",
        2, "allow", "p1 p2", "d" * 64, "ok", 123, "t" * 32, "{}", "", "robot",
    )  # fmt: skip


def read(folder: Path, sql: str = "SELECT correlation_id FROM audit ORDER BY rowid") -> list[Any]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(sql).fetchall()


async def test_closing_commits_everything_in_order(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    for number in range(1234):
        log.put(record(number))
    await log.close()
    assert read(tmp_path) == [(f"id-{number}",) for number in range(1234)]
    assert read(tmp_path, f"SELECT {', '.join(COLUMNS)} FROM audit LIMIT 1") == [record(0)]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


async def test_a_record_is_committed_without_being_asked_for(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    for number in range(3):  # each into a queue that was empty
        log.put(record(number))
        while len(read(tmp_path)) <= number:
            await asyncio.sleep(0.005)
    await log.close()


async def test_a_flush_returns_when_all_that_was_put_is_committed(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    await log.flush()
    for number in range(1, 51):
        log.put(record(number))
        await log.flush()
        assert len(read(tmp_path)) == number
    await log.close()


async def test_a_full_log_is_flushed_and_takes_more(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    written = 0
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        while not log.full:
            log.put(record(written))
            written += 1
        blocker.execute("ROLLBACK")
    await log.flush()
    assert not log.full
    log.put(record(written))
    await log.close()
    assert len(read(tmp_path)) == written + 1


async def test_the_queue_is_bounded_even_for_those_who_do_not_wait(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    taken = 0
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        refused = None
        while refused is None and taken < 100_000:
            try:
                log.put(record(taken))
                taken += 1
            except Fault as fault:
                refused = fault.kind
        blocker.execute("ROLLBACK")
    assert refused is Kind.UNAVAILABLE
    await log.close()
    assert len(read(tmp_path)) == taken


async def test_two_processes_write_one_log(tmp_path: Path) -> None:
    first, second = await AuditLog.open(tmp_path), await AuditLog.open(tmp_path)
    for number in range(1000):
        first.put(record(number, "first"))
        second.put(record(number, "second"))
    await asyncio.gather(first.close(), second.close())
    assert read(tmp_path, "SELECT tenant, count(*) FROM audit GROUP BY tenant") == [("first", 1000), ("second", 1000)]


async def test_a_record_that_cannot_be_written_takes_no_other_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await AuditLog.open(tmp_path)
    log.put(record(0))
    log.put(cast("Row", (*record(1)[:-1], "\ud800")))
    log.put(cast("Row", (*record(2)[:-1], None)))
    log.put(record(3))
    await log.close()
    assert read(tmp_path) == [("id-0",), ("id-3",)]
    assert caplog.text.count("could not be written") == 2


async def test_a_disk_that_fails_fails_the_flush_and_loses_nothing_when_it_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await AuditLog.open(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("ALTER TABLE audit RENAME TO hidden")
        log.put(record(0))
        with pytest.raises(Fault) as caught:
            await log.flush()
        assert caught.value.kind is Kind.UNAVAILABLE
        other.execute("ALTER TABLE hidden RENAME TO audit")
    log.put(record(1))
    await log.flush()
    assert read(tmp_path) == [("id-0",), ("id-1",)]
    await log.close()
    with pytest.raises(Fault):
        log.put(record(2))
