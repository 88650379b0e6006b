"""Tests of error results: every code of the contract, the retryable flag, and no internal details."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


def store_path(memory: Any) -> Path:
    settings = memory.gateway_thread.gateway.app.settings
    return settings.files_dir / "stores" / memory.tenant / "knowledge.db"


ROWS = [
    ("store", {"topic": "t"}, "validation", False),
    ("store", {"topic": "t", "content": 1}, "validation", False),
    ("store", {"topic": "t", "content": "c", "confidence": 1.5}, "validation", False),
    ("store", {"topic": "t" * 1001, "content": "c"}, "validation", False),
    ("store", {"topic": "t", "content": "c" * 100_001}, "validation", False),
    ("store", {"topic": "t", "content": "a\0b"}, "validation", False),
    ("store", {"topic": "t", "content": "c", "tags": ["a\0"]}, "validation", False),
    ("relate", {"subject": "s", "predicate": "p" * 2001, "object": "o"}, "validation", False),
    ("query", {"limit": 201}, "validation", False),
    ("history", {"limit": 101}, "validation", False),
    ("store", {"topic": " ", "content": "c"}, "policy", False),
    ("store", {"topic": "t", "content": "\n"}, "policy", False),
    ("relate", {"subject": "s", "predicate": "", "object": "o"}, "policy", False),
    ("upsert_entity", {"name": "n", "aliases": [" "]}, "policy", False),
    ("update", {"id": "nope", "content": "c"}, "not_found", False),
    ("delete", {"id": "nope"}, "not_found", False),
]


@pytest.mark.parametrize(("tool", "arguments", "code", "retryable"), ROWS)
async def test_us_002_002_error_has_stable_code_and_retryable_flag(
    memory: Any, tool: str, arguments: Any, code: str, retryable: bool
) -> None:
    error = await memory.error(tool, **arguments)
    assert (error["code"], error["retryable"]) == (code, retryable)
    assert error["message"]
    assert error["correlation_id"]


async def test_us_002_002_sdk_client_receives_code_and_retryable_flag_of_every_error(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        for tool, arguments, code, retryable in ROWS:
            result = await client.call_tool(f"knowledge_{tool}", arguments)
            assert result.is_error, (tool, arguments)
            error = result.structured_content["error"]
            assert (error["code"], error["retryable"]) == (code, retryable), (tool, arguments)
            assert result.content[0].text == error["message"]


async def test_us_002_002_unreadable_database_is_a_retryable_dependency_error(memory: Any, era: str) -> None:
    path = store_path(memory)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"this is no database " * 1000)
    async with memory.gateway.client(era) as client:
        result = await client.call_tool("knowledge_store", {"topic": "t", "content": "c"})
    assert result.is_error
    error = result.structured_content["error"]
    assert (error["code"], error["retryable"]) == ("dependency", True)
    # Text-only clients receive the same message, without internal details.
    assert result.content[0].text == error["message"]
    assert str(path.parent) not in str(result)


async def test_internal_error_does_not_leak_details(memory: Any) -> None:
    await memory("store", topic="t", content="c")
    with closing(sqlite3.connect(store_path(memory))) as connection:
        connection.execute("UPDATE entries SET tags = 'no JSON'")
        connection.commit()
    error = await memory.error("query")
    assert (error["code"], error["retryable"]) == ("internal", False)
    assert not any(word in str(error) for word in ("JSON", "sqlite", "Traceback", "Expecting", "tags"))


async def test_confidence_below_the_minimum_is_a_policy_error(start: Any) -> None:
    backend = {"module": "backends.knowledge", "options": {"min_confidence": 0.5}}
    async with start(backends={"knowledge": backend}) as gateway:

        async def call(tool: str, **arguments: Any) -> Any:
            return (await gateway.call(f"knowledge_{tool}", arguments))["result"]

        refused = await call("store", topic="t", content="c", confidence=0.4)
        assert refused["structuredContent"]["error"]["code"] == "policy"
        assert not (await call("store", topic="t", content="c", confidence=0.5))["isError"]
        assert not (await call("store", topic="t", content="c"))["isError"]
        assert (await call("relate", subject="s", predicate="p", object="o", confidence=0))["isError"]
