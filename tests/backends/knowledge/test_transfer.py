"""Export and import as JSON Lines, and `knowledge://stats`."""

import json
from typing import Any

import pytest


async def fill(memory: Any) -> None:
    first = await memory("store", topic="t", content="old", tags=["x"])
    await memory("update", id=first["id"], content="new")
    gone = await memory("store", topic="gone", content="soon")
    await memory("delete", id=gone["id"])
    await memory("relate", subject="a", predicate="p", object="b", entry_id=first["id"])
    one, two = [await memory("upsert_entity", name=name) for name in ("one", "two")]
    await memory("merge_entities", keep_id=one["id"], merge_id=two["id"])
    await memory("undo")


async def export(memory: Any, **arguments: Any) -> str:
    page = await memory("export", **arguments)
    lines = page["jsonl"]
    while page["next_cursor"] is not None:
        page = await memory("export", cursor=page["next_cursor"], **arguments)
        lines += page["jsonl"]
    return lines


async def state_of(memory: Any) -> Any:
    lists = ("entries", "graph/triples", "graph/entities", "history/transactions")
    return [(await memory.read(f"knowledge://{name}?limit=200"))["items"] for name in lists]


async def test_import_of_an_export_with_history_gives_the_same_memory(memory: Any) -> None:
    await fill(memory)
    other = await memory.in_other_tenant()
    imported = await other("import", jsonl=await export(memory))
    assert imported == {"transactions": 9, "items": 0, "skipped": 0}
    assert await state_of(other) == await state_of(memory)
    assert (await other("history", limit=100))["items"] == (await memory("history", limit=100))["items"]
    # The history is alive: it can be undone in both, with the same outcome.
    for each in (memory, other):
        await each("undo", count=4)
    assert [len(items) for items in await state_of(other)] == [len(items) for items in await state_of(memory)]


async def test_repeated_import_skips_what_is_known(memory: Any) -> None:
    await fill(memory)
    other = await memory.in_other_tenant()
    lines = await export(memory)
    await other("import", jsonl=lines)
    before = await state_of(other)
    assert await other("import", jsonl=lines) == {"transactions": 0, "items": 0, "skipped": 9}
    assert await state_of(other) == before


async def test_import_without_history_is_one_new_transaction(memory: Any) -> None:
    await fill(memory)
    other = await memory.in_other_tenant()
    lines = await export(memory, history=False)
    kinds = [json.loads(line)["type"] for line in lines.splitlines()]
    assert kinds == ["header", "entity", "entity", "entry", "triple"]
    assert await other("import", jsonl=lines) == {"transactions": 0, "items": 4, "skipped": 0}
    assert [item["content"] for item in (await other("query"))["items"]] == ["new"]
    assert (await other("query", topic="new"))["items"][0]["topic"] == "t"
    await other("undo")
    assert (await other("query"))["items"] == []


async def test_large_export_comes_in_pages(memory: Any) -> None:
    for n in range(12):
        await memory("store", topic=f"t{n}", content=f"{n} " + "x" * 90_000)
    first = await memory("export")
    assert first["next_cursor"] is not None
    assert len(first["jsonl"]) < 700_000
    whole = await export(memory)
    assert len(whole.splitlines()) == 13
    other = await memory.in_other_tenant()
    for start in range(0, 13, 4):
        await other("import", jsonl="\n".join(whole.splitlines()[start : start + 4]))
    assert len((await other("query"))["items"]) >= 5


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", '{"type": "entry", "item": {"id": "x"}}', '{"type": "unknown"}', '{"type": "transaction"}'],
)
async def test_line_that_is_not_of_an_export_is_rejected_and_nothing_is_imported(memory: Any, line: str) -> None:
    await memory("store", topic="t", content="x")
    other = await memory.in_other_tenant()
    error = await other.error("import", jsonl=(await export(memory)) + line)
    assert (error["code"], error["details"]["line"]) == ("validation", 3)
    assert (await other("query"))["items"] == []


async def test_cursor_of_another_list_is_rejected_by_export(memory: Any) -> None:
    for n in range(2):
        await memory("store", topic="t", content=str(n))
    cursor = (await memory("query", limit=1))["next_cursor"]
    assert (await memory.error("export", cursor=cursor))["code"] == "validation"


async def test_stats_count_what_the_memory_holds(memory: Any) -> None:
    (empty,) = (await memory.read("knowledge://stats"))["items"]
    assert (empty["entries"], empty["transactions"], empty["stored_bytes"]) == (0, 0, 0)
    await fill(memory)
    (stats,) = (await memory.read("knowledge://stats"))["items"]
    counted = {name: stats[name] for name in ("entries", "triples", "entities", "transactions", "tags")}
    assert counted == {"entries": 1, "triples": 1, "entities": 2, "transactions": 9, "tags": 1}
    assert stats["stored_bytes"] > 0
    assert stats["search"] == "words and graph"


@pytest.mark.parametrize(
    "uri",
    ["knowledge://entries/nope", "knowledge://graph/triples/nope", "knowledge://stats/x", "knowledge://conflicts/x"],
)
async def test_subscription_to_a_resource_that_does_not_exist_is_rejected(memory: Any, uri: str) -> None:
    async with memory.gateway.client("legacy") as client:
        with pytest.raises(Exception, match="Unknown resource"):
            await client.subscribe_resource(uri)
        await client.subscribe_resource("knowledge://entries")
