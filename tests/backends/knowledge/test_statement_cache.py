"""Checks that calls reuse SQL statements: a statement per call would stay in memory until garbage collection."""

import gc
from collections import Counter
from typing import Any

ROUNDS = 3


async def call_every_tool(memory: Any, number: int) -> None:
    created = await memory("store", topic="deployment", content=f"number {number}", tags=["a", "b"])
    await memory("update", id=created["id"], content=f"number {number}, again", tags=["a"])
    for arguments in (
        {"topic": "deployment"},
        {"tags": ["a"]},
        {"tags": ["a", "b"]},
        {},
        {"topic": "number", "as_of": "any"},
    ):
        await memory("query", limit=1, **arguments)
    await memory("relate", subject=f"subject {number}", predicate="is", object="thing")
    await memory("upsert_triple", subject=f"subject {number}", predicate="is", object="another")
    await memory("query_graph", subject="subject", object="thing")
    await memory("query_graph", predicate="is", limit=1)
    for arguments in ({}, {"actor": "alice"}, {"entity_id": created["id"]}, {"entity_type": "entry"}):
        await memory("history", limit=1, **arguments)
    await memory("delete", id=created["id"])
    await memory("undo", count=2)
    await memory.read("knowledge://entries?limit=1")


async def test_calls_leave_no_statements_to_the_garbage_collector(memory: Any) -> None:
    await call_every_tool(memory, 0)
    gc.collect()
    gc.disable()
    try:
        for number in range(1, ROUNDS + 1):
            await call_every_tool(memory, number)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("sqlalchemy.sql"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # Ignore objects that other parts of the process leave behind occasionally, not once per round.
    assert {kind: count for kind, count in left.items() if count >= ROUNDS} == {}
