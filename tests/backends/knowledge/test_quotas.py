"""How much of one tenant's is kept, and how much waits: no tenant fills the house."""

import asyncio
from typing import Any

import pytest

from backends.knowledge.ingest import MOST_AT_A_TIME
from tests.backends.knowledge.test_ingest import finished, text_of


@pytest.fixture
def small(start: Any) -> Any:
    """A gateway whose memories hold ten kilobytes of changes."""

    def starting() -> Any:
        knowledge = {"module": "backends.knowledge", "options": {"max_bytes": 10_000}}
        return start(backends={"knowledge": knowledge}, tenants={"default": {}, "other": {}})

    return starting


async def call(gateway: Any, tool: str, **arguments: Any) -> Any:
    return (await gateway.call(f"knowledge_{tool}", arguments))["result"]["structuredContent"]


async def stored(gateway: Any, statement: str = "SELECT stored_bytes FROM clock") -> Any:
    async with gateway.house.stores.store("default", "knowledge", None).transaction() as connection:
        done = await connection.exec_driver_sql(statement)
        return done.scalar_one() if done.returns_rows else None


async def test_a_full_memory_takes_in_nothing_new_but_lets_take_back(small: Any) -> None:
    async with small() as gateway:
        made = [await call(gateway, "store", topic="t", content=f"{n}" + "ä" * 2000) for n in range(2)]
        full = (await call(gateway, "store", topic="t", content="y" * 2000))["error"]
        assert (full["kind"], full["code"], full["message"]) == ("denied", "policy", "This memory is full.")
        assert full["max_bytes"] == 10_000
        assert "raise `max_bytes`" in full["suggested_fix"]
        text = await call(gateway, "ingest", content=text_of(40), wait=True)
        assert text["error"]["message"] == "This memory is full."
        task = await stored(gateway, "SELECT status || ': ' || failure || chunks FROM ingestions")
        assert task == "failed: This memory is full.[]"
        long = await call(gateway, "update", id=made[0]["id"], content="z" * 2000)
        assert long["error"]["message"] == "This memory is full."
        assert await stored(gateway) == await stored(
            gateway, "SELECT SUM(LENGTH(CAST(changes AS BLOB))) FROM transactions"
        )
        other = gateway.as_(await gateway.new_key("other"))
        assert (await call(other, "store", topic="t", content="x" * 2000))["topic"] == "t"
        assert (await call(gateway, "delete", id=made[0]["id"]))["deleted"]
        assert len((await call(gateway, "undo", count=3))["reverted"]) == 3


async def test_a_memory_older_than_the_count_is_counted_at_its_next_change(small: Any) -> None:
    async with small() as gateway:
        await call(gateway, "store", topic="t", content="x" * 4000)
        counted = await stored(gateway)
        await stored(gateway, "UPDATE clock SET stored_bytes = NULL")
        await call(gateway, "store", topic="t", content="x")
        assert counted < await stored(gateway) < counted + 1000
        assert "error" in await call(gateway, "store", topic="t", content="y" * 6000)


async def test_texts_that_wait_to_be_taken_in_are_few(memory: Any) -> None:
    asked = [
        memory.post("tools/call", {"name": "knowledge_ingest", "arguments": {"content": text_of(200, f"w{n}")}})
        for n in range(30)
    ]
    answers = [answer["result"]["structuredContent"] for answer in await asyncio.gather(*asked)]
    refused = [answer["error"] for answer in answers if "error" in answer]
    assert {(error["kind"], error["code"]) for error in refused} == {("rate_limited", "policy")}
    assert refused[0]["message"] == f"{MOST_AT_A_TIME} texts are being taken in already."
    begun = [answer for answer in answers if "error" not in answer]
    assert len(begun) >= MOST_AT_A_TIME
    for task in begun:
        assert (await finished(memory, task))["status"] == "completed"
    again = await memory("ingest", content=text_of(90, "later"))
    assert (await finished(memory, again))["status"] == "completed"
