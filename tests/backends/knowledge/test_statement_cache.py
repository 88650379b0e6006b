"""What every call runs is made once: a statement for a single call would wait in memory for the garbage collector."""

import gc
from collections import Counter
from typing import Any

ROUNDS = 3


async def one_of_each(memory: Any, number: int) -> None:
    made = await memory("store", topic="deployment", content=f"number {number}", tags=["a", "b"])
    await memory("update", id=made["id"], content=f"number {number}, again", tags=["a"])
    for asked in (
        {"topic": "deployment"},
        {"tags": ["a"]},
        {"tags": ["a", "b"]},
        {},
        {"topic": "number", "as_of": "any"},
    ):
        await memory("query", limit=1, **asked)
    await memory("relate", subject=f"subject {number}", predicate="is", object="thing")
    await memory("upsert_triple", subject=f"subject {number}", predicate="is", object="another")
    await memory("query_graph", subject="subject", object="thing")
    await memory("query_graph", predicate="is", limit=1)
    for asked in ({}, {"actor": "alice"}, {"entity_id": made["id"]}, {"entity_type": "entry"}):
        await memory("history", limit=1, **asked)
    await memory("delete", id=made["id"])
    await memory("undo", count=2)
    await memory.read("knowledge://entries?limit=1")


async def test_no_call_leaves_a_statement_to_the_garbage_collector(memory: Any) -> None:
    await one_of_each(memory, 0)
    gc.collect()
    gc.disable()
    try:
        for number in range(1, ROUNDS + 1):
            await one_of_each(memory, number)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("sqlalchemy.sql"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # What others in this process leave once in a while is not what a call leaves each time.
    assert {kind: count for kind, count in left.items() if count >= ROUNDS} == {}
