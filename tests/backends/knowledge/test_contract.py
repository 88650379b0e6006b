"""Acceptance criteria of the contract with the SDK client in both protocol eras."""

import json
from typing import Any

import jsonschema_rs
import pytest
from mcp.types import EmbeddedResource, TextContent, TextResourceContents

SEED_TOOLS = ("store", "update", "query", "delete", "relate", "query_graph", "undo", "history")


async def call_seed_tools(client: Any) -> dict[str, Any]:
    """Call each of the eight seed tools once, successfully."""
    done: dict[str, Any] = {}

    async def call(tool: str, **arguments: Any) -> Any:
        done[tool] = await client.call_tool(f"knowledge_{tool}", arguments)
        assert not done[tool].is_error, done[tool]
        return done[tool].structured_content

    created = await call("store", topic="deployment", content="Use blue-green deploys.", confidence=0.92)
    await call("update", id=created["id"], content="Use canary deploys.")
    await call("query", topic="deployment")
    await call("relate", subject="deployment", predicate="runs_on", object="kubernetes")
    await call("query_graph", subject="deployment")
    await call("delete", id=created["id"])
    await call("undo")
    await call("history")
    return done


async def test_us_002_001_every_tool_returns_structured_content_matching_its_output_schema(
    memory: Any, era: str
) -> None:
    async with memory.gateway.client(era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        results = await call_seed_tools(client)
    assert set(results) == set(SEED_TOOLS)
    for name, result in results.items():
        tool = listed[f"knowledge_{name}"]
        assert tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        jsonschema_rs.validator_for(tool.output_schema).validate(result.structured_content)


async def test_us_002_001_every_result_has_a_text_summary_and_an_embedded_resource(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        for result in (await call_seed_tools(client)).values():
            text, block = result.content
            assert isinstance(text, TextContent)
            assert text.text
            assert isinstance(block, EmbeddedResource)
            assert isinstance(block.resource, TextResourceContents)
            assert block.resource.mime_type == "application/json"
            assert str(block.resource.uri).startswith("knowledge://")
            assert json.loads(block.resource.text) == result.structured_content


async def test_us_002_001_query_returns_the_example_result_of_the_contract(memory: Any, era: str) -> None:
    await memory("store", topic="deployment", content="Use blue-green deploys.", confidence=0.92)
    await memory("store", topic="deployment rollback", content="Rollback within 5 min.", confidence=0.85)
    async with memory.gateway.client(era) as client:
        result = await client.call_tool("knowledge_query", {"topic": "deployment"})
    text, block = result.content
    assert text.text.splitlines()[0] == 'Found 2 entries matching "deployment".'
    assert str(block.resource.uri) == "knowledge://entries?topic=deployment"
    body = json.loads(block.resource.text)
    assert [item["topic"] for item in body["items"]] == ["deployment", "deployment rollback"]
    assert {"id", "topic", "content", "confidence", "recorded_at"} <= set(body["items"][0])
    assert body["next_cursor"] is None


async def test_us_002_001_text_only_client_can_store_query_update_and_undo(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:

        async def call_text(tool: str, **arguments: Any) -> str:
            return (await client.call_tool(f"knowledge_{tool}", arguments)).content[0].text

        id_ = (await call_text("store", topic="deployment", content="Use blue-green deploys.")).split()[-1].rstrip(".")
        found = await call_text("query", topic="deployment")
        assert id_ in found
        assert "Use blue-green deploys." in found
        await call_text("update", id=id_, content="Use canary deploys.")
        assert "Use canary deploys." in await call_text("query", topic="canary")
        assert "UPDATE" in await call_text("history")
        assert "Reverted 1 transaction" in await call_text("undo")
        assert "Use blue-green deploys." in await call_text("query", topic="deployment")
        assert await call_text("undo", actor="nobody") == "Nothing to undo."
        assert "There is no entry" in await call_text("delete", id="nope")


async def test_us_002_001_tool_annotations_mark_read_only_and_destructive_tools(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        hints = {tool.name.removeprefix("knowledge_"): tool.annotations for tool in (await client.list_tools()).tools}
    reading = {name for name, hint in hints.items() if hint.read_only_hint}
    assert reading == {"query", "query_graph", "history", "ingestion_status"}
    destructive = {name for name, hint in hints.items() if hint.destructive_hint}
    assert destructive == {"delete", "undo", "merge_entities", "resolve_conflict"}


async def test_us_002_002_sdk_client_receives_structured_error(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        await client.list_tools()
        result = await client.call_tool("knowledge_store", {"topic": "only a topic"})
    assert result.is_error
    error = result.structured_content["error"]
    assert (error["code"], error["retryable"]) == ("validation", False)
    assert result.content[0].text == error["message"]


async def test_us_002_003_three_resources_are_listed_with_required_fields(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
    for uri in ("knowledge://entries", "knowledge://graph/triples", "knowledge://history/transactions"):
        resource = listed[uri]
        assert resource.name
        assert resource.description
        assert resource.mime_type == "application/json"
        assert isinstance(resource.meta["version"], int)
    assert len(listed) < 10
    assert "knowledge://entries/{id}" in templates


async def test_us_002_003_listed_resources_have_version_at_top_level(memory: Any) -> None:
    listed = (await memory.post("resources/list"))["result"]["resources"]
    assert all(isinstance(each["version"], int) for each in listed)


@pytest.mark.parametrize(
    "uri", ["knowledge://entries", "knowledge://graph/triples", "knowledge://history/transactions"]
)
async def test_us_002_003_resource_pages_end_with_a_null_cursor(memory: Any, era: str, uri: str) -> None:
    for n in range(3):
        await memory("store", topic="t", content=str(n))
        await memory("relate", subject=f"s{n}", predicate="p", object="o")
    async with memory.gateway.client(era) as client:
        cursor, pages = "", []
        while cursor is not None:
            page_uri = f"{uri}?limit=2" + (f"&cursor={cursor}" if cursor else "")
            (content,) = (await client.read_resource(page_uri)).contents
            body = json.loads(content.text)
            assert body["resource_uri"] == page_uri
            assert body["as_of_tx_id"]
            pages.append(body["items"])
            cursor = body["next_cursor"]
    expected = 6 if uri.endswith("transactions") else 3
    assert sum(map(len, pages)) == len({item["id"] for page in pages for item in page}) == expected
    assert all(len(page) == 2 for page in pages[:-1])


async def test_us_002_005_three_prompts_are_listed_and_use_all_arguments(memory: Any, era: str) -> None:
    async with memory.gateway.client(era) as client:
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert {f"knowledge_{name}" for name in ("ingest-memory", "retrieve-context", "correct-stale-facts")} == set(
            listed
        )
        for name, prompt in listed.items():
            arguments = {argument.name: f"<{argument.name}>" for argument in prompt.arguments}
            got = await client.get_prompt(name, arguments)
            text = got.messages[0].content.text
            assert all(value in text for value in arguments.values())
            assert "`query`" in text
