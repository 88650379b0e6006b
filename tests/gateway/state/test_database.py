import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from gateway.state.changes import Keys
from gateway.state.database import MIGRATIONS, Database

RunInProcess = Callable[[str, Path], Awaitable[str]]

WRITE = """
from sqlalchemy import text
from gateway.state.database import Database
database = await Database.open(folder, url)
async with database.transaction() as connection:
    await connection.execute(text("INSERT INTO tenants (name) VALUES ('elsewhere')"))
print(__import__("time").time())
await database.close()
"""
RACE = """
import os, time
from sqlalchemy import text
from gateway.state.database import Database
go = folder.parent / "go"
(folder.parent / f"ready-{os.getpid()}").touch()
while not go.exists():
    time.sleep(0.001)
for number, database in enumerate(await asyncio.gather(*(Database.open(folder, url) for _ in range(4)))):
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (name) VALUES (:name)"), {"name": f"{os.getpid()}-{number}"})
    await database.close()
"""


async def names(database: Database) -> set[str]:
    async with database.reading() as connection:
        return {name for (name,) in await connection.execute(text("SELECT name FROM tenants"))}


async def insert(database: Database, name: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (name) VALUES (:name)"), {"name": name})


async def test_transaction_is_rolled_back_when_its_block_raises(database: Database) -> None:
    async def fail_halfway() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('half')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_halfway()
    assert await names(database) == set()
    await insert(database, "whole")
    assert await names(database) == {"whole"}


async def test_cancelled_transaction_is_rolled_back_and_releases_the_lock(database: Database) -> None:
    inside = asyncio.Event()

    async def hang() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('half')"))
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await inside.wait()
    waiting = asyncio.create_task(insert(database, "impatient"))
    await asyncio.sleep(0)
    waiting.cancel()
    task.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    await insert(database, "whole")
    assert "half" not in await names(database)
    assert "whole" in await names(database)


async def test_writers_are_serialized_and_readers_do_not_wait(database: Database, second_database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (name) VALUES ('first')"))
        other = asyncio.create_task(insert(second_database, "second"))
        assert await names(second_database) == set()
        assert not other.done()
    await other
    assert await names(database) == {"first", "second"}


async def test_read_transaction_cannot_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"readonly|read-only"):
        async with database.reading() as connection:
            await connection.execute(text("INSERT INTO tenants (name) VALUES ('rejected')"))


async def test_commit_in_another_process_notifies_within_a_second(
    database: Database, run_in_process: RunInProcess, tmp_path: Path
) -> None:
    changed = asyncio.Event()
    times: list[float] = []

    def on_change(keys: Keys) -> None:
        if keys is None:  # the LISTEN connection is ready
            return
        assert keys == {"elsewhere"}
        times.append(time.time())
        changed.set()

    database.on_change("tenants", on_change)
    committed = float(await run_in_process(WRITE, tmp_path / "data"))
    await asyncio.wait_for(changed.wait(), 5)
    assert times[0] - committed < 1
    assert await names(database) == {"elsewhere"}


async def test_failing_listener_does_not_keep_others_from_being_notified(
    database: Database, second_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    notified = asyncio.Event()

    def fail(_keys: Keys) -> None:
        raise ZeroDivisionError

    database.on_change("tenants", fail)
    database.on_change("tenants", lambda _keys: notified.set())
    for name in ("first", "second"):
        await insert(second_database, name)
        await asyncio.wait_for(notified.wait(), 5)
        notified.clear()
    assert "ZeroDivisionError" in caplog.text


async def test_follow_continues_after_a_failed_load(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    loaded: list[Keys] = []
    failed, recovered = False, asyncio.Event()

    async def load(keys: Keys) -> None:
        nonlocal failed
        if keys is not None and not failed:
            failed = True
            raise ZeroDivisionError
        loaded.append(keys)
        if failed:
            recovered.set()

    await database.follow("tenants", load)
    assert loaded == [None]
    await insert(database, "change")
    await asyncio.wait_for(recovered.wait(), 5)
    assert loaded[-1] is None or "change" in loaded[-1]


async def test_processes_can_open_a_new_folder_at_the_same_time(
    run_in_process: RunInProcess, tmp_path: Path, database_url: str | None
) -> None:
    data, racers = tmp_path / "data", 2
    runs = [asyncio.ensure_future(run_in_process(RACE, data)) for _ in range(racers)]
    while len(list(tmp_path.glob("ready-*"))) < racers:
        assert not any(run.done() for run in runs)
        await asyncio.sleep(0.01)
    (tmp_path / "go").touch()
    await asyncio.gather(*runs)
    database = await Database.open(data, database_url)
    assert len(await names(database)) == racers * 4
    async with database.reading() as connection:
        applied = (await connection.execute(text("SELECT count(*) FROM migrations"))).scalar_one()
    assert applied == len({path.name[:4] for path in MIGRATIONS.glob("*.sql")})
    await database.close()
