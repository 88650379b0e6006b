"""Compares random sequences of changes and undos with the reference model, and tests concurrent writers."""

import asyncio
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.knowledge.reference_model import OPS, Driver, Model


async def test_random_operations_match_the_reference_model(memory: Any) -> None:
    await check_against_model(memory, 15)


async def check_against_model(memory: Any, examples: int) -> None:
    """Check that random sequences give the same contents, history and resources as the model."""
    loop = asyncio.get_running_loop()

    async def play(ops: list[Any]) -> None:
        model, driver = Model(), Driver(await memory.in_other_tenant())
        for op in ops:
            await driver.step(model, op)
        await driver.compare(model)

    @settings(max_examples=examples, deadline=None, suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)))
    @given(st.lists(OPS, min_size=12, max_size=30))
    def plays(ops: list[Any]) -> None:
        asyncio.run_coroutine_threadsafe(play(ops), loop).result()

    await asyncio.to_thread(plays)


async def test_sixteen_concurrent_writers_lose_no_changes(memory: Any) -> None:
    shared = await memory("store", topic="counter", content="0")

    async def write(writer: int) -> list[str]:
        created = []
        for n in range(5):
            entry = await memory("store", topic=f"writer {writer}", content=f"{writer}/{n}", actor=f"w{writer}")
            created.append(entry["id"])
            await memory("relate", subject=f"w{writer}", predicate=f"said{n}", object=f"{n}")
            await memory("update", id=shared["id"], content=f"{writer}/{n}")
        return created

    created = [id_ for ids in await asyncio.gather(*map(write, range(16))) for id_ in ids]
    found = [item for page in await memory.pages("query", limit=50) for item in page]
    assert {item["id"] for item in found} == {*created, shared["id"]}
    (counter,) = [item for item in found if item["id"] == shared["id"]]
    assert counter["version"] == 81
    history = [item["id"] for page in await memory.pages("history", limit=100) for item in page]
    assert len(history) == len(set(history)) == 1 + 16 * 15
    assert history == sorted(history, reverse=True)
    assert (await memory.read("knowledge://entries"))["as_of_tx_id"] == history[0]


async def test_only_one_concurrent_update_of_the_same_version_succeeds(memory: Any) -> None:
    created = await memory("store", topic="t", content="0")
    tries = [memory.result("update", {"id": created["id"], "content": str(n), "expected_version": 1}) for n in range(8)]
    results = await asyncio.gather(*tries)
    won = [result["structuredContent"]["content"] for result in results if not result["isError"]]
    assert await memory.contents() == won
    codes = [result["structuredContent"]["error"]["code"] for result in results if result["isError"]]
    assert codes == ["conflict"] * 7


async def test_only_one_of_concurrent_contradicting_facts_is_written(memory: Any) -> None:
    facts = [memory("relate", subject="s", predicate="p", object=str(n)) for n in range(8)]
    responses = await asyncio.gather(*facts)
    assert sum("conflict_id" not in answer for answer in responses) == 1
    assert len((await memory("query_graph"))["items"]) == 1
