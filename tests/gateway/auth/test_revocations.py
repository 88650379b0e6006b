import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.auth.revocations import Revocations
from gateway.contract import Caller
from gateway.state.database import Database


@pytest.fixture
async def databases(tmp_path: Path, database_url: str | None) -> AsyncGenerator[tuple[Database, Database]]:
    """One database, opened by two processes."""
    one, two = await Database.open(tmp_path, database_url), await Database.open(tmp_path, database_url)
    yield one, two
    await one.close()
    await two.close()


def bearer(token: str) -> Caller:
    return Caller("acme", "alice", token=token, credential=f"family of {token}", client="program", issued=1.0)


async def wait_for_change(revocations: Revocations) -> None:
    changed = asyncio.Event()
    revocations.on_change(changed.set)
    await asyncio.wait_for(changed.wait(), 5)


async def test_revocations_of_another_process_add_up(databases: tuple[Database, Database]) -> None:
    here, there = await Revocations.open(databases[0]), await Revocations.open(databases[1])
    await here.add("token", "a", 100)
    for token in ("b", "c: with a colon"):
        change = asyncio.create_task(wait_for_change(here))
        await asyncio.sleep(0)
        await there.add("token", token, 100)
        await change
    assert [here.is_revoked(bearer(token)) for token in ("a", "b", "c: with a colon", "d")] == [True] * 3 + [False]


async def test_same_value_of_another_kind_is_not_revoked(databases: tuple[Database, Database]) -> None:
    here = await Revocations.open(databases[0])
    await here.add("family", "x", 100)
    assert not here.is_revoked(bearer("x"))
    await here.add("token", "x", 100)
    assert here.is_revoked(bearer("x"))


async def test_withdrawn_revocation_is_noticed(databases: tuple[Database, Database]) -> None:
    here = await Revocations.open(databases[0])
    await here.add("token", "a", 100)
    await here.add("token", "b", 100)
    change = asyncio.create_task(wait_for_change(here))
    await asyncio.sleep(0)
    async with databases[1].transaction() as connection:
        await connection.execute(text("DELETE FROM revocations WHERE value = 'a'"))
    await change
    assert not here.is_revoked(bearer("a"))
    assert here.is_revoked(bearer("b"))


async def test_expired_revocations_leave_memory_and_database(databases: tuple[Database, Database]) -> None:
    now = [1000.0]
    here = Revocations(databases[0], clock=lambda: now[0])
    await here.add("token", "a", 100)
    now[0] += 700
    await here.add("token", "b", 100)
    assert not here.is_revoked(bearer("a"))
    assert here.is_revoked(bearer("b"))
    async with databases[0].reading() as connection:
        assert (await connection.execute(text("SELECT value FROM revocations"))).scalars().all() == ["b"]
