"""Tests of the limits per tenant: stored bytes and concurrent ingestions."""

import asyncio
from typing import Any

import pytest

from backends.knowledge.ingest import MAX_CONCURRENT
from tests.backends.knowledge.test_ingest import text_of, wait_until_finished


@pytest.fixture
def small_quota_gateway(start: Any) -> Any:
    """Start a gateway with a quota of ten kilobytes of changes per tenant."""

    def start_gateway() -> Any:
        knowledge = {"module": "backends.knowledge", "options": {"max_bytes": 10_000}}
        return start(backends={"knowledge": knowledge}, tenants={"default": {}, "other": {}})

    return start_gateway


async def call(gateway: Any, tool: str, **arguments: Any) -> Any:
    return (await gateway.call(f"knowledge_{tool}", arguments))["result"]["structuredContent"]


async def run_sql(gateway: Any, statement: str = "SELECT stored_bytes FROM clock") -> Any:
    async with gateway.app.stores.store("default", "knowledge", None).transaction() as connection:
        done = await connection.exec_driver_sql(statement)
        return done.scalar_one() if done.returns_rows else None


async def test_full_memory_rejects_writes_but_allows_delete_and_undo(small_quota_gateway: Any) -> None:
    async with small_quota_gateway() as gateway:
        created = [await call(gateway, "store", topic="t", content=f"{n}" + "ä" * 2000) for n in range(2)]
        full = (await call(gateway, "store", topic="t", content="y" * 2000))["error"]
        assert (full["kind"], full["code"], full["message"]) == ("denied", "policy", "This memory is full.")
        assert full["max_bytes"] == 10_000
        assert "raise `max_bytes`" in full["suggested_fix"]
        text = await call(gateway, "ingest", content=text_of(40), wait=True)
        assert text["error"]["message"] == "This memory is full."
        task = await run_sql(gateway, "SELECT status || ': ' || failure || chunks FROM ingestions")
        assert task == "failed: This memory is full.[]"
        long = await call(gateway, "update", id=created[0]["id"], content="z" * 2000)
        assert long["error"]["message"] == "This memory is full."
        assert await run_sql(gateway) == await run_sql(
            gateway, "SELECT SUM(LENGTH(CAST(changes AS BLOB))) FROM transactions"
        )
        other = gateway.as_(await gateway.new_key("other"))
        assert (await call(other, "store", topic="t", content="x" * 2000))["topic"] == "t"
        assert (await call(gateway, "delete", id=created[0]["id"]))["deleted"]
        assert len((await call(gateway, "undo", count=3))["reverted"]) == 3


async def test_stored_bytes_of_an_old_database_are_counted_on_its_next_write(small_quota_gateway: Any) -> None:
    async with small_quota_gateway() as gateway:
        await call(gateway, "store", topic="t", content="x" * 4000)
        counted = await run_sql(gateway)
        await run_sql(gateway, "UPDATE clock SET stored_bytes = NULL")
        await call(gateway, "store", topic="t", content="x")
        assert counted < await run_sql(gateway) < counted + 1000
        assert "error" in await call(gateway, "store", topic="t", content="y" * 6000)


async def test_too_many_concurrent_ingestions_are_rejected(memory: Any) -> None:
    requests = [
        memory.post("tools/call", {"name": "knowledge_ingest", "arguments": {"content": text_of(200, f"w{n}")}})
        for n in range(30)
    ]
    responses = [answer["result"]["structuredContent"] for answer in await asyncio.gather(*requests)]
    refused = [answer["error"] for answer in responses if "error" in answer]
    assert {(error["kind"], error["code"]) for error in refused} == {("rate_limited", "policy")}
    assert refused[0]["message"] == f"{MAX_CONCURRENT} ingestions are already in progress."
    started = [answer for answer in responses if "error" not in answer]
    assert len(started) >= MAX_CONCURRENT
    for task in started:
        assert (await wait_until_finished(memory, task))["status"] == "completed"
    again = await memory("ingest", content=text_of(90, "later"))
    assert (await wait_until_finished(memory, again))["status"] == "completed"
