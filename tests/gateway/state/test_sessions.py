import asyncio
import time

import pytest
from sqlalchemy import text

from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.sessions import SessionRows

LATER = time.time() + 3600


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def rows(database: Database) -> int:
    async with database.reading() as connection:
        return (await connection.execute(text("SELECT count(*) FROM session_facts"))).scalar_one()


async def test_session_without_rows_is_not_ended(database: Database) -> None:
    sessions = await SessionRows.open(database)
    assert not sessions.is_ended("d")
    assert sessions.log_level("d") is None
    assert sessions.subscriptions("d") == frozenset()
    assert await rows(database) == 0


async def test_session_facts_are_readable_immediately(database: Database) -> None:
    sessions = await SessionRows.open(database)
    await sessions.set_log_level("d", "debug", LATER)
    await sessions.set_log_level("d", "error", LATER)
    await sessions.subscribe("d", "a://1", LATER)
    await sessions.subscribe("d", "a://2", LATER)
    await sessions.unsubscribe("d", "a://1")
    assert sessions.log_level("d") == "error"
    assert sessions.subscriptions("d") == {"a://2"}
    assert not sessions.is_ended("d")
    assert sessions.log_level("other") is None


async def test_ended_session_has_no_log_level_or_subscriptions(database: Database) -> None:
    sessions = await SessionRows.open(database)
    await sessions.set_log_level("d", "debug", LATER)
    await sessions.subscribe("d", "a://1", LATER)
    await sessions.end("d", LATER)
    await sessions.subscribe("d", "a://2", LATER)
    assert sessions.is_ended("d")
    assert sessions.log_level("d") is None
    assert sessions.subscriptions("d") == frozenset()


async def test_session_facts_reach_other_processes_within_a_second(
    database: Database, second_database: Database
) -> None:
    here, there = await SessionRows.open(database), await SessionRows.open(second_database)
    await here.subscribe("d", "a://1", LATER)
    # Works whether or not the other process has loaded the subscription.
    await there.unsubscribe("d", "a://1")
    await there.set_log_level("e", "debug", LATER)
    await there.end("f", LATER)
    committed = time.monotonic()
    while not here.is_ended("f"):
        assert time.monotonic() - committed < 1
        await asyncio.sleep(0.01)
    assert here.subscriptions("d") == frozenset()
    assert here.log_level("e") == "debug"


async def test_process_loads_existing_facts_on_start(database: Database, second_database: Database) -> None:
    before = await SessionRows.open(database)
    await before.end("d", LATER)
    await before.subscribe("e", "a://1", LATER)
    after = await SessionRows.open(second_database)
    assert after.is_ended("d")
    assert after.subscriptions("e") == {"a://1"}


async def test_expired_rows_are_deleted_from_table_and_memory(database: Database) -> None:
    clock = Clock()
    sessions = SessionRows(database, clock=clock)
    await sessions.end("old", clock.now + 10)
    await sessions.end("long", clock.now + 10_000)
    clock.now += 1000
    await sessions.end("new", clock.now + 10)
    assert not sessions.is_ended("old")
    assert sessions.is_ended("long")
    assert sessions.is_ended("new")
    assert await rows(database) == 2


async def test_number_of_ended_sessions_is_bounded_in_table_and_memory(database: Database) -> None:
    sessions = SessionRows(database, max_ended=5)
    for number in range(20):
        await sessions.end(f"d{number}", LATER)
    assert await rows(database) == 5
    assert [number for number in range(20) if sessions.is_ended(f"d{number}")] == [15, 16, 17, 18, 19]


async def test_load_reads_new_rows_only(database: Database) -> None:
    sessions = await SessionRows.open(database)
    await sessions.end("d", LATER)
    # A loaded row is not read again, so a change that does not advance its sequence is not seen.
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE session_facts SET digest = 'changed'"))
    await sessions.end("e", LATER)
    assert sessions.is_ended("d")
    assert sessions.is_ended("e")
    assert not sessions.is_ended("changed")


async def test_subscription_above_the_limit_is_rejected(database: Database) -> None:
    sessions = await SessionRows.open(database)
    async with database.transaction() as connection:
        for number in range(256):
            await connection.execute(
                text("INSERT INTO session_facts VALUES ('d', 'subscription', :uri, 'on', :later, :number)"),
                {"uri": f"a://{number}", "later": LATER, "number": number + 1},
            )
        await connection.execute(text("UPDATE session_sequence SET last = 256"))
    await sessions.load()
    with pytest.raises(Fault) as caught:
        await sessions.subscribe("d", "a://more", LATER)
    assert caught.value.kind is Kind.TOO_LARGE
    await sessions.subscribe("d", "a://7", LATER)
    assert len(sessions.subscriptions("d")) == 256


def digest_of(tenant: str, number: int) -> str:
    return f"{tenant}:{number:032x}"


async def test_rows_of_one_tenant_never_evict_those_of_another(database: Database, second_database: Database) -> None:
    sessions = SessionRows(database, max_ended=20)
    await sessions.end(digest_of("beta", 1), LATER)
    await sessions.set_log_level(digest_of("beta", 2), "debug", LATER)
    await sessions.subscribe(digest_of("beta", 2), "a://1", LATER)
    for number in range(60):
        await sessions.end(digest_of("acme", number), LATER)
        await sessions.set_log_level(digest_of("acme", 1000 + number), "info", LATER)
        await sessions.subscribe(digest_of("acme", 1000 + number), "a://1", LATER)
        await sessions.add_answer(digest_of("acme", 2000), f"q{number}", "{}")
    after = SessionRows(second_database, max_ended=20)
    await after.load()
    for each in (sessions, after):
        assert each.is_ended(digest_of("beta", 1))
        assert each.log_level(digest_of("beta", 2)) == "debug"
        assert each.subscriptions(digest_of("beta", 2)) == {"a://1"}
        assert [number for number in range(60) if each.is_ended(digest_of("acme", number))] == list(range(40, 60))
        levels = [number for number in range(60) if each.log_level(digest_of("acme", 1000 + number))]
        assert 0 < len(levels) <= 5
        assert levels[-1] == 59
    async with database.reading() as connection:
        counted = (await connection.execute(text("SELECT fact, count(*) FROM session_facts GROUP BY fact"))).all()
    assert {fact: count for fact, count in counted if fact != "answer"} == {
        "ended": 21, "log_level": 6, "subscription": 6,
    }  # fmt: skip


async def test_answers_are_deleted_by_age_only(database: Database) -> None:
    clock = Clock()
    sessions = SessionRows(database, max_ended=5, clock=clock)
    for number in range(20):
        await sessions.add_answer("d", f"q{number}", "{}")
    assert await rows(database) == 20
    clock.now += 61
    await sessions.set_log_level("e", "debug", clock.now + 10)
    assert await rows(database) == 1
