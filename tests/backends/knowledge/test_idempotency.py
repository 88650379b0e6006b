"""Idempotency keys: a repeated write returns the first answer and writes nothing."""

import asyncio
from typing import Any

import pytest

KEY = {"idempotencyKey": "k-1"}
ENTRY = {"topic": "t", "content": "x", "on_duplicate": "store"}


async def test_repeated_write_returns_the_first_answer_and_writes_once(memory: Any) -> None:
    first, second = [await memory.result("store", ENTRY, meta=KEY) for _ in range(2)]
    assert first["structuredContent"] == second["structuredContent"]
    assert first["content"] == second["content"]
    assert len(await memory.contents()) == 1
    assert len((await memory("history"))["items"]) == 1


async def test_concurrent_writes_with_one_key_write_once(memory: Any) -> None:
    results = await asyncio.gather(*(memory.result("store", ENTRY, meta=KEY) for _ in range(8)))
    assert len({result["structuredContent"]["id"] for result in results}) == 1
    assert len(await memory.contents()) == 1


async def test_key_with_other_arguments_is_rejected(memory: Any) -> None:
    await memory.result("store", ENTRY, meta=KEY)
    error = (await memory.result("store", {**ENTRY, "content": "y"}, meta=KEY))["structuredContent"]["error"]
    assert (error["code"], error["validation_path"]) == ("validation", "_meta.idempotencyKey")


async def test_key_belongs_to_one_tool_and_one_principal(memory: Any) -> None:
    await memory.result("store", ENTRY, meta=KEY)
    await memory.result("relate", {"subject": "a", "predicate": "b", "object": "c"}, meta=KEY)
    await (await memory.as_subject("bob")).result("store", ENTRY, meta=KEY)
    assert len(await memory.contents()) == 2
    assert len((await memory("query_graph"))["items"]) == 1


async def test_failed_write_can_be_repeated_with_the_same_key(memory: Any) -> None:
    created = await memory("store", topic="t", content="x")
    arguments = {"id": created["id"], "expected_version": 2, "content": "y"}
    assert (await memory.result("update", arguments, meta=KEY))["isError"]
    await memory("update", id=created["id"], content="z")
    assert not (await memory.result("update", arguments, meta=KEY))["isError"]


@pytest.mark.parametrize("key", ["", "k" * 256, 5, None])
async def test_invalid_key_is_rejected_or_counts_as_absent(memory: Any, key: Any) -> None:
    result = await memory.result("store", ENTRY, meta={"idempotencyKey": key})
    assert result["isError"] is (key is not None)


async def test_repeated_ingestion_returns_the_same_task(memory: Any) -> None:
    text = "\n\n".join(f"Paragraph {n}\n" + "word " * 90 for n in range(60))
    first, second = [await memory.result("ingest", {"content": text, "wait": True}, meta=KEY) for _ in range(2)]
    assert first["structuredContent"]["task_id"] == second["structuredContent"]["task_id"]
    assert second["structuredContent"]["status"] == "completed"
    assert len(await memory.contents(limit=200)) == 60


async def test_dry_run_does_not_use_up_the_key(memory: Any) -> None:
    await memory.result("store", ENTRY, meta={**KEY, "dryRun": True})
    result = await memory.result("store", ENTRY, meta=KEY)
    assert "dryRun" not in result["structuredContent"]
    assert len(await memory.contents()) == 1
