"""Dry runs: every writing tool shows what it would change, as `diff`, and changes nothing."""

from typing import Any

import pytest

DRY = {"dryRun": True}


async def state_of(memory: Any) -> Any:
    """Return everything that a change would alter."""
    lists = ("entries", "graph/triples", "graph/entities", "history/transactions")
    return [(await memory.read(f"knowledge://{name}"))["items"] for name in lists]


async def preview(memory: Any, tool: str, **arguments: Any) -> Any:
    result = await memory.result(tool, arguments, meta=DRY)
    assert not result["isError"], result
    assert result["content"][0]["text"].startswith("Dry run: nothing was changed.")
    assert result["structuredContent"]["dryRun"] is True
    return result["structuredContent"]


async def test_dry_run_of_each_writing_tool_shows_its_diff_and_changes_nothing(memory: Any) -> None:
    entry = await memory("store", topic="t", content="old")
    triple = await memory("relate", subject="a", predicate="p", object="b")
    one, two = [await memory("upsert_entity", name=name) for name in ("one", "two")]
    conflict = await memory("relate", subject="a", predicate="p", object="c")
    before = await state_of(memory)
    calls = {
        "store": ({"topic": "new", "content": "text"}, ["create entry"]),
        "update": ({"id": entry["id"], "content": "new"}, ["update entry"]),
        "delete": ({"id": entry["id"]}, ["delete entry"]),
        "relate": ({"subject": "x", "predicate": "y", "object": "z"}, ["create triple"]),
        "upsert_triple": ({"subject": "a", "predicate": "p", "object": "d"}, ["update triple"]),
        "update_triple": ({"id": triple["id"], "object": "e"}, ["update triple"]),
        "resolve_conflict": (
            {"conflict_id": conflict["conflict_id"], "strategy": "replace"},
            ["create triple", "delete triple"],
        ),
        "upsert_entity": ({"name": "three"}, ["create entity"]),
        "merge_entities": ({"keep_id": one["id"], "merge_id": two["id"]}, ["delete entity", "update entity"]),
        "ingest": ({"content": "First.\n\n" + "word " * 150 + "\n\nLast."}, ["create entry"] * 3),
        "undo": ({}, ["delete entity"]),
    }
    listed = (await memory.post("tools/list"))["result"]["tools"]
    writing = {tool["name"] for tool in listed if "gox:supportsDryRun" in tool["_meta"]}
    assert writing == {f"knowledge_{name}" for name in (*calls, "import")}
    assert all(tool["_meta"]["gox:supportsDryRun"] for tool in listed if tool["name"] in writing)
    for tool, (arguments, changes) in calls.items():
        shown = (await preview(memory, tool, **arguments))["diff"]
        assert [f"{each['change']} {each['entity_type']}" for each in shown["entries"]] == changes, tool
        assert shown["summary"].startswith("It would "), tool
        assert await state_of(memory) == before, tool


async def test_dry_run_shows_the_snapshots_before_and_after(memory: Any) -> None:
    entry = await memory("store", topic="t", content="old")
    (change,) = (await preview(memory, "update", id=entry["id"], content="new"))["diff"]["entries"]
    assert (change["before_snapshot"]["content"], change["after_snapshot"]["content"]) == ("old", "new")
    assert change["entity_id"] == entry["id"]


async def test_dry_run_fails_where_the_real_call_would_fail(memory: Any) -> None:
    for tool, arguments, code in (
        ("delete", {"id": "nope"}, "not_found"),
        ("store", {"topic": " ", "content": "x"}, "policy"),
    ):
        result = await memory.result(tool, arguments, meta=DRY)
        assert result["structuredContent"]["error"]["code"] == code


async def test_dry_run_of_a_long_ingestion_counts_all_chunks_and_bounds_its_diff(memory: Any) -> None:
    text = "\n\n".join(f"Paragraph {n}\n" + "word " * 90 for n in range(120))
    shown = await preview(memory, "ingest", content=text)
    assert (shown["status"], shown["stored"]) == ("completed", 120)
    assert len(shown["diff"]["entries"]) == 50
    assert shown["diff"]["truncated"]
    assert await memory.contents() == []


async def test_reads_ignore_a_dry_run(memory: Any) -> None:
    await memory("store", topic="t", content="found")
    result = await memory.result("query", {"topic": "found"}, meta=DRY)
    assert len(result["structuredContent"]["items"]) == 1
    assert "dryRun" not in result["structuredContent"]


@pytest.mark.parametrize("value", ["yes", "on", " true", 1])
async def test_dry_run_value_that_is_not_a_boolean_is_rejected(memory: Any, value: Any) -> None:
    result = await memory.result("store", {"topic": "t", "content": "x"}, meta={"dryRun": value})
    assert result["structuredContent"]["error"]["code"] == "validation"
    assert await memory.contents() == []


async def test_dry_run_works_in_both_eras(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        result = await client.call_tool("knowledge_store", {"topic": "t", "content": "x"}, meta=DRY)
    assert result.structured_content["diff"]["summary"] == "It would create 1 entry."
    assert await memory.contents() == []
