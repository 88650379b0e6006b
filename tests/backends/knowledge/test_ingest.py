"""Tests of ingestion: chunks become entries, duplicates are skipped, large texts run in the background."""

import asyncio
from typing import Any

import pytest
from mcp.types import CreateMessageResult, TextContent


def text_of(paragraphs: int, word: str = "lorem") -> str:
    return "\n\n".join(f"Paragraph {n} of {word}\n" + f"{word} " * 60 for n in range(paragraphs))


async def wait_until_finished(memory: Any, task: Any) -> Any:
    while task["status"] in ("pending", "processing"):
        task = await memory("ingestion_status", task_id=task["task_id"])
    return task


async def test_short_text_is_ingested_synchronously_and_undone_in_one_step(memory: Any) -> None:
    task = await memory("ingest", content=text_of(5), source="notes.md", tags=["notes"], confidence=0.8)
    assert (task["status"], task["total"], task["stored"], task["skipped"]) == ("completed", 5, 5, 0)
    items = (await memory("query", tags=["ingested", "notes"]))["items"]
    assert [item["topic"] for item in items] == [f"Paragraph {n} of lorem" for n in range(4, -1, -1)]
    assert {(item["source"], item["confidence"], item["actor"]) for item in items} == {("notes.md", 0.8, "alice")}
    await memory("undo")
    assert await memory.contents() == []


async def test_exact_duplicate_chunks_are_skipped(memory: Any) -> None:
    await memory("ingest", content=text_of(3))
    again = await memory("ingest", content=text_of(4) + "\n\n" + text_of(4))
    assert (again["stored"], again["skipped"]) == (1, 7)
    assert len(await memory.contents()) == 4


async def test_large_text_is_ingested_in_the_background(memory: Any) -> None:
    task = await memory("ingest", content=text_of(90), topic="book")
    assert task["status"] in ("pending", "processing")
    task = await wait_until_finished(memory, task)
    assert (task["status"], task["processed"], task["stored"]) == ("completed", 90, 90)
    assert len(await memory.contents(topic="book", limit=200)) == 90
    assert (await memory.read(f"knowledge://ingestions/{task['task_id']}"))["items"] == [task]


async def test_waiting_caller_receives_progress(memory: Any, era: str) -> None:
    received: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        received.append((done, total))

    async with memory.gateway.client(era) as client:
        result = await client.call_tool(
            "knowledge_ingest", {"content": text_of(50, era), "wait": True}, progress_callback=progress
        )
    assert result.structured_content["status"] == "completed"
    assert received[-1] == (50, 50)
    assert [done for done, _ in received] == sorted({done for done, _ in received})


async def test_ingestion_completes_after_the_waiting_caller_disconnects(memory: Any) -> None:
    arguments = {"content": text_of(190), "topic": "left", "wait": True}
    waiting = asyncio.create_task(memory.post("tools/call", {"name": "knowledge_ingest", "arguments": arguments}))
    while not await memory.contents(topic="left"):
        await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(20):
        while len(await memory.contents(topic="left", limit=200)) < 190:
            await asyncio.sleep(0)


async def test_text_over_the_size_limit_is_rejected(memory: Any) -> None:
    error = await memory.error("ingest", content="ä" * 450_001)
    assert (error["code"], error["max_bytes"]) == ("validation", 900_000)


async def test_invalid_validity_is_rejected_before_ingestion_starts(memory: Any) -> None:
    assert (await memory.error("ingest", content=text_of(90), valid_to="soon"))["code"] == "validation"


@pytest.mark.parametrize("content", ["", " \n\n \t"])
async def test_blank_text_is_rejected(memory: Any, content: str) -> None:
    assert (await memory.error("ingest", content=content))["code"] == "policy"


async def test_an_unknown_task_is_not_found(memory: Any) -> None:
    assert (await memory.error("ingestion_status", task_id="nope"))["code"] == "not_found"


async def test_ingested_entries_keep_their_place_in_the_source(memory: Any) -> None:
    text = "\n\n  ".join(f"Paragraph {n}\r\n" + "word " * 90 for n in range(40))
    await memory("ingest", content=text, source="book.txt", wait=True)
    items = [item for page in await memory.pages("query", tags=["ingested"], limit=20) for item in page]
    assert len(items) == 40
    for item in items:
        assert text[item["source_start"] : item["source_end"]].split() == item["content"].split()
        assert item["source"] == "book.txt"


FACTS = """Here are the facts:
{"passage": 1, "subject": "Alice", "predicate": "works_at", "object": "Acme"}
{"passage": 1, "subject": "Acme", "predicate": "based_in", "object": "Oslo"}
{"passage": 9, "subject": "no such passage", "predicate": "is", "object": "dropped"}
{"subject": "half a fact"}
"""


async def test_facts_are_extracted_by_the_model_of_the_client_and_contradictions_show(memory: Any, era: str) -> None:
    asked: list[Any] = []

    async def sample(context: Any, params: Any) -> Any:
        asked.append(params)
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=FACTS), model="test")

    await memory("relate", subject="acme", predicate="based_in", object="Bergen")
    async with memory.gateway.client(era, sampling_callback=sample) as client:
        arguments = {"content": "Alice works at Acme in Oslo.", "source": "hr.pdf", "extract_facts": True}
        result = await client.call_tool("knowledge_ingest", arguments)
    task = result.structured_content
    assert (task["status"], task["facts"], task["contradictions"]) == ("completed", 1, 1)
    (entry,) = (await memory("query", tags=["ingested"]))["items"]
    (fact,) = (await memory("query_graph", entry_id=entry["id"]))["items"]
    assert (fact["subject"], fact["object"], fact["inferred"], fact["source"]) == ("Alice", "Acme", True, "hr.pdf")
    await memory("resolve_conflict", conflict_id=task["conflict_ids"][0], strategy="replace")
    (moved,) = (await memory("query_graph", subject="acme", predicate="based_in"))["items"]
    assert (moved["object"], moved["inferred"]) == ("Oslo", True)
    assert "Alice works at Acme" in asked[0].messages[0].content.text


async def test_extraction_without_sampling_is_rejected_before_anything_is_stored(memory: Any) -> None:
    error = await memory.error("ingest", content="Alice works at Acme.", extract_facts=True)
    assert error["kind"] == "unsupported"
    assert await memory.contents() == []
