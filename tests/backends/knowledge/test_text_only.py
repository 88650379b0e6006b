"""The acceptance criteria again, for a client that reads nothing but text: no structured content, no `_meta`."""

import json
import re
from typing import Any

import pytest

from tests.backends.knowledge.test_subscriptions import ENTRIES, listening

LISTS = ("knowledge://entries", "knowledge://graph/triples", "knowledge://history/transactions")


class Reader:
    """The SDK's client, of which only the texts are seen."""

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


def first_id(text: str) -> str:
    found = re.search(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", text)
    assert found, text
    return found[0]


async def test_us_002_001_a_reader_of_text_turns_the_pages_of_every_search(memory: Any, era: str) -> None:
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
        for tool, asked, count in searches:
            seen: list[str] = []
            more: dict[str, str] = {}
            while True:
                text = await reader.call(f"knowledge_{tool}", limit=2, **asked, **more)
                lines = text.splitlines()
                seen += [first_id(line) for line in lines if line.startswith("- ")]
                if not lines[-1].startswith("More with cursor "):
                    break
                more = {"cursor": lines[-1].removeprefix("More with cursor ")}
            assert len(seen) == len(set(seen)) == count, (tool, asked)


async def test_us_002_002_a_reader_of_text_is_told_what_is_wrong_and_where(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        reader = Reader(client)
        assert "content" in await reader.call("knowledge_store", topic="only a topic")
        assert "There is no entry 'nope'" in await reader.call("knowledge_update", id="nope", content="c")
        assert "blank" in await reader.call("knowledge_store", topic="t", content=" ")


@pytest.mark.parametrize("uri", LISTS)
async def test_us_002_003_a_reader_of_text_browses_each_resource_to_its_end(memory: Any, era: str, uri: str) -> None:
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
            asked = f"{uri}?limit=2" + (f"&cursor={cursor}" if cursor else "")
            body = json.loads(await reader.read(asked))
            assert list(body) == ["resource_uri", "as_of_tx_id", "items", "next_cursor"]
            assert (body["resource_uri"], bool(body["as_of_tx_id"])) == (asked, True)
            seen += [item["id"] for item in body["items"]]
            if (cursor := body["next_cursor"]) is None:
                break
    assert len(seen) == len(set(seen)) == (6 if uri.endswith("transactions") else 3)


async def test_us_002_004_a_reader_of_text_who_hears_only_an_address_finds_what_changed(memory: Any, era: str) -> None:
    async with listening(memory, era, ENTRIES) as (client, ears):
        reader = Reader(client)
        made = await memory("store", topic="t", content="new")
        await ears.catch_up()
        (address,) = {str(params.uri) for params in ears.of(ENTRIES)}
        newest = json.loads(await reader.read(f"{address}?limit=1"))
        assert [item["content"] for item in newest["items"]] == ["new"]
        # What happened, and by which transaction, is in the history's own words.
        told = await reader.call("knowledge_history", entity_id=made["id"])
        assert f"CREATE entry {made['id']} by alice" in told
        await memory("delete", id=made["id"])
        await ears.catch_up()
        assert len(ears.of(ENTRIES)) == 2
        assert json.loads(await reader.read(address))["items"] == []
        assert f"DELETE entry {made['id']}" in await reader.call("knowledge_history", entity_id=made["id"], limit=1)


async def test_us_002_004_a_reader_of_text_hears_no_address_after_unsubscribing(memory: Any) -> None:
    async with listening(memory, "legacy", ENTRIES) as (client, ears):
        await client.unsubscribe_resource(ENTRIES)
        await memory("store", topic="t", content="unheard")
        await ears.catch_up()
        assert ears.of(ENTRIES) == []
        assert "unheard" in await Reader(client).read(ENTRIES)


async def test_us_002_005_a_reader_of_text_can_run_each_prompt_as_it_stands(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        prompts = (await client.list_prompts()).prompts
        assert len(prompts) == 3
        for prompt in prompts:
            given = {argument.name: f"some {argument.name}" for argument in prompt.arguments or []}
            text = await Reader(client).prompt(prompt.name, given)
            assert all(value in text for value in given.values())
            assert "changes nothing" in text
            named = set(re.findall(r"`([a-z_]+)`", text)) - {"conflict", "knowledge_query"}
            # Whatever it says to call is there to be called, under the name that it says the tools are shown by.
            assert "`query` may be shown to you as `knowledge_query`" in text
            assert named, prompt.name
            assert {f"knowledge_{name}" for name in named} <= tools


async def test_us_002_005_a_reader_of_text_corrects_a_stale_fact_by_its_prompt(memory: Any, era: str) -> None:
    await memory("store", topic="host", content="It is host-1.")
    async with memory.gateway.client(era) as client:
        reader = Reader(client)
        given = {"topic": "host", "correct_fact": "It is host-2."}
        text = await reader.prompt("knowledge_correct-stale-facts", given)
        asked = re.search(r"Call `query` with topic \"(\w+)\"", text)
        assert asked
        stale = first_id(await reader.call("knowledge_query", topic=asked[1]))
        assert "CREATE" in await reader.call("knowledge_history", entity_id=stale)
        assert "to version 2" in await reader.call(
            "knowledge_update", id=stale, content="It is host-2.", expected_version=1
        )
        assert "It is host-2." in await reader.call("knowledge_query", topic="host")
        assert "Reverted 1 transaction" in await reader.call("knowledge_undo")
        assert "It is host-1." in await reader.call("knowledge_query", topic="host")
