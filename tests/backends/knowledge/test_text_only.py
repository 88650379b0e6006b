"""Acceptance criteria for a text-only client, which ignores structured content and `_meta`."""

import json
import re
from typing import Any

import pytest

from tests.backends.knowledge.test_subscriptions import ENTRIES, subscribed_client

LISTS = ("knowledge://entries", "knowledge://graph/triples", "knowledge://history/transactions")


class Reader:
    """A text-only view of the SDK client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> str:
        (first, *_) = (await self._client.call_tool(tool, arguments)).content
        return first.text

    async def read(self, uri: str) -> str:
        (content,) = (await self._client.read_resource(uri)).contents
        return content.text

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        (message,) = (await self._client.get_prompt(name, arguments)).messages
        return message.content.text


def find_id(text: str) -> str:
    found = re.search(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", text)
    assert found, text
    return found[0]


async def test_us_002_001_text_only_client_can_page_through_every_search(memory: Any, era: str) -> None:
    for n in range(3):
        await memory("store", topic="deployment", content=f"fact {n}", tags=["a"])
        await memory("relate", subject=f"s{n}", predicate="p", object="o")
    async with memory.gateway.client(era) as client:
        reader = Reader(client)
        searches = (
            ("query", {"topic": "deployment"}, 3),
            ("query", {"tags": ["a"]}, 3),
            ("query_graph", {"object": "o"}, 3),
            ("history", {}, 6),
        )
        for tool, query, count in searches:
            seen: list[str] = []
            more: dict[str, str] = {}
            while True:
                text = await reader.call(f"knowledge_{tool}", limit=2, **query, **more)
                lines = text.splitlines()
                seen += [find_id(line) for line in lines if line.startswith("- ")]
                if not lines[-1].startswith("More with cursor "):
                    break
                more = {"cursor": lines[-1].removeprefix("More with cursor ")}
            assert len(seen) == len(set(seen)) == count, (tool, query)


async def test_us_002_002_text_only_client_receives_the_cause_and_field_of_an_error(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        reader = Reader(client)
        assert "content" in await reader.call("knowledge_store", topic="only a topic")
        assert "There is no entry 'nope'" in await reader.call("knowledge_update", id="nope", content="c")
        assert "blank" in await reader.call("knowledge_store", topic="t", content=" ")


@pytest.mark.parametrize("uri", LISTS)
async def test_us_002_003_text_only_client_can_page_through_each_resource(memory: Any, era: str, uri: str) -> None:
    for n in range(3):
        await memory("store", topic="t", content=f"fact {n}")
        await memory("relate", subject=f"s{n}", predicate="p", object="o")
    async with memory.gateway.client(era) as client:
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        assert listed[uri].name
        assert listed[uri].description
        assert listed[uri].mime_type == "application/json"
        reader, seen, cursor = Reader(client), [], None
        while True:
            query = f"{uri}?limit=2" + (f"&cursor={cursor}" if cursor else "")
            body = json.loads(await reader.read(query))
            assert list(body) == ["resource_uri", "as_of_tx_id", "items", "next_cursor"]
            assert (body["resource_uri"], bool(body["as_of_tx_id"])) == (query, True)
            seen += [item["id"] for item in body["items"]]
            if (cursor := body["next_cursor"]) is None:
                break
    assert len(seen) == len(set(seen)) == (6 if uri.endswith("transactions") else 3)


async def test_us_002_004_text_only_client_finds_the_change_from_the_notified_uri(memory: Any, era: str) -> None:
    async with subscribed_client(memory, era, ENTRIES) as (client, recorder):
        reader = Reader(client)
        created = await memory("store", topic="t", content="new")
        await recorder.flush()
        (uri,) = {str(params.uri) for params in recorder.of(ENTRIES)}
        newest = json.loads(await reader.read(f"{uri}?limit=1"))
        assert [item["content"] for item in newest["items"]] == ["new"]
        # The text of the history names the operation and the transaction.
        history = await reader.call("knowledge_history", entity_id=created["id"])
        assert f"CREATE entry {created['id']} by alice" in history
        await memory("delete", id=created["id"])
        await recorder.flush()
        assert len(recorder.of(ENTRIES)) == 2
        assert json.loads(await reader.read(uri))["items"] == []
        assert f"DELETE entry {created['id']}" in await reader.call(
            "knowledge_history", entity_id=created["id"], limit=1
        )


async def test_us_002_004_text_only_client_receives_no_uri_after_unsubscribing(memory: Any) -> None:
    async with subscribed_client(memory, "legacy", ENTRIES) as (client, recorder):
        await client.unsubscribe_resource(ENTRIES)
        await memory("store", topic="t", content="unheard")
        await recorder.flush()
        assert recorder.of(ENTRIES) == []
        assert "unheard" in await Reader(client).read(ENTRIES)


async def test_us_002_005_text_only_client_can_run_each_prompt(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        prompts = (await client.list_prompts()).prompts
        assert len(prompts) == 3
        for prompt in prompts:
            arguments = {argument.name: f"some {argument.name}" for argument in prompt.arguments or []}
            text = await Reader(client).prompt(prompt.name, arguments)
            assert all(value in text for value in arguments.values())
            assert "changes nothing" in text
            named = set(re.findall(r"`([a-z_]+)`", text)) - {"conflict", "knowledge_query"}
            # Every tool that the prompt names exists under its prefixed name.
            assert "`query` may be shown to you as `knowledge_query`" in text
            assert named, prompt.name
            assert {f"knowledge_{name}" for name in named} <= tools


async def test_us_002_005_text_only_client_can_correct_a_stale_fact_with_the_prompt(memory: Any, era: str) -> None:
    await memory("store", topic="host", content="It is host-1.")
    async with memory.gateway.client(era) as client:
        reader = Reader(client)
        arguments = {"topic": "host", "correct_fact": "It is host-2."}
        text = await reader.prompt("knowledge_correct-stale-facts", arguments)
        query = re.search(r"Call `query` with topic \"(\w+)\"", text)
        assert query
        stale = find_id(await reader.call("knowledge_query", topic=query[1]))
        assert "CREATE" in await reader.call("knowledge_history", entity_id=stale)
        assert "to version 2" in await reader.call(
            "knowledge_update", id=stale, content="It is host-2.", expected_version=1
        )
        assert "It is host-2." in await reader.call("knowledge_query", topic="host")
        assert "Reverted 1 transaction" in await reader.call("knowledge_undo")
        assert "It is host-1." in await reader.call("knowledge_query", topic="host")
