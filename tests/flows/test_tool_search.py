"""The search view: three tools instead of a list, for clients of both eras."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import ElicitResult, TextContent

from tests.conftest import Running, Start

Json = dict[str, Any]

TICKETS = {"module": "tests.flows.fixtures.tickets"}
DANGER = {"module": "tests.flows.fixtures.danger", "effects": {"drop": 3}}
RULES = [
    {"deny": "tickets.delete_*"},
    {"allow": "tickets.create_issue", "name": "report_problem", "set": {"project": "SUP"}},
    {"allow": "*"},
]
SERVERS: Json = {
    "found": {"backends": ["tickets", "danger", "core"], "tools": {"view": "search", "rules": RULES}},
    "plain": {"backends": ["tickets"], "tools": "search"},
    "small": {"backends": ["tickets"], "tools": "auto"},
    "large": {"backends": ["tickets"], "tools": {"view": "auto", "budget": 10}},
}
NAMES = ["search_tools", "describe_tools", "call_tool"]


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    backends = {"tickets": TICKETS, "danger": DANGER, "core": {"module": "backends.core"}}
    async with start(backends=backends, servers=SERVERS) as gateway:
        yield gateway


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def search(client: Client, query: str, **more: Any) -> list[Json]:
    result = await client.call_tool("search_tools", {"query": query, **more})
    block = result.content[0]
    assert isinstance(block, TextContent)
    found = json.loads(block.text)
    assert result.structured_content in (None, found)
    return found["results"]


@pytest.mark.parametrize(
    ("path", "searched"), [("found", True), ("plain", True), ("small", False), ("large", True), ("tickets", False)]
)
async def test_list_has_three_tools_where_the_server_is_searched(
    running: Running, era: str, path: str, searched: bool
) -> None:
    async with running.client(era, f"/mcp/{path}") as client:
        listed = await names(client)
        assert (listed == NAMES) == searched
        assert len(listed) == 3


async def test_result_has_what_a_call_needs(running: Running, era: str) -> None:
    async with running.client(era, "/mcp/found") as client:
        found = (await search(client, "create a new issue"))[0]
        assert found["name"] == "report_problem"
        assert (found["kind"], found["namespace"], found["effect"]) == ("tool", "tickets", "writes")
        assert found["needsApproval"] is False
        assert "project" not in found["inputSchema"]["properties"]
        result = await client.call_tool("call_tool", {"name": found["name"], "arguments": {"summary": "s"}})
        assert result.structured_content is not None
        assert result.structured_content["project"] == "SUP"
        described = await client.call_tool(
            "describe_tools", {"names": ["tickets.create_issue", "tickets.delete_issue"]}
        )
        block = described.content[0]
        assert isinstance(block, TextContent)
        answer = json.loads(block.text)
        assert [tool["name"] for tool in answer["tools"]] == ["report_problem"]
        assert answer["unknown"] == ["tickets.delete_issue"]


@pytest.mark.parametrize("name", ["tickets.delete_issue", "tickets_delete_issue", "call_tool", "search_tools", "none"])
async def test_tool_outside_the_view_is_neither_found_nor_called(running: Running, era: str, name: str) -> None:
    async with running.client(era, "/mcp/found") as client:
        assert "tickets_delete_issue" not in str(await search(client, "delete an issue", limit=20))
        with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
            await client.call_tool("call_tool", {"name": name, "arguments": {"id": 1}})


async def test_errors_and_audit_are_those_of_the_real_tool(running: Running, era: str, tmp_path: Path) -> None:
    async with running.client(era, "/mcp/found") as client:
        wrong = await client.call_tool("call_tool", {"name": "tickets_get_issue", "arguments": {"id": "x"}})
        direct = await client.call_tool("tickets_get_issue", {"id": "x"})
        assert wrong.is_error
        assert [block.text for block in wrong.content if isinstance(block, TextContent)] == [
            block.text for block in direct.content if isinstance(block, TextContent)
        ]
        for arguments in ({}, {"name": 7}, {"name": "tickets_get_issue", "arguments": []}, {"name": "x", "more": 1}):
            with pytest.raises(MCPError):
                await client.call_tool("call_tool", arguments)
    await running.app.audit.flush()
    with closing(sqlite3.connect(tmp_path / "data" / "audit.db")) as database:
        rows = database.execute("SELECT target, arguments_digest FROM audit WHERE outcome = 'invalid_input'").fetchall()
    assert len(set(rows[:2])) == 1
    assert rows[0][0] == "tickets.get_issue"


async def test_approval_is_asked_for_the_real_tool(
    running: Running, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    async with running.client(era, "/mcp/found", elicitation_callback=approve) as client:
        hits = await search(client, "erase everything", namespace="danger", limit=20)
        dangerous = [hit for hit in hits if hit["needsApproval"] is True]
        assert dangerous
        name = dangerous[0]["name"]
        arguments = dict.fromkeys(dangerous[0]["inputSchema"].get("required", []), "x")
        await client.call_tool("call_tool", {"name": name, "arguments": arguments})
    assert len(asked) == 1
    assert name.replace("_", ".", 1) in asked[0]
    assert "call_tool" not in asked[0]


async def test_prompts_and_resources_are_found_as_well(running: Running, era: str) -> None:
    async with running.client(era, "/mcp/plain") as client:
        prompt = (await search(client, "triage an issue", kinds=["prompt"]))[0]
        assert (prompt["kind"], prompt["name"]) == ("prompt", "tickets_triage")
        assert prompt["arguments"][0]["name"] == "issue"
        resource = (await search(client, "open issues", kinds=["resource"]))[0]
        assert resource["uri"] == "gatehouse://tickets/tickets%3A%2F%2Fopen"


async def test_header_selects_the_view_of_any_endpoint(running: Running) -> None:
    async def listed(path: str, **headers: str) -> list[str]:
        answer = (await running.post("tools/list", None, path=path, **headers)).json()
        return [tool["name"] for tool in answer["result"]["tools"]]

    assert await listed("/mcp", gatehouse_tools="search") == NAMES
    assert "tickets_get_issue" in await listed("/mcp")
    assert "tickets_get_issue" in await listed("/mcp/plain", gatehouse_tools="list")
    call: Json = {"name": "search_tools", "arguments": {"query": "issue"}}
    found = (await running.post("tools/call", call, gatehouse_tools="search")).json()["result"]
    assert found["structuredContent"]["results"][0]["namespace"] == "tickets"
    assert "Unknown tool" in (await running.post("tools/call", call)).text
    assert "must be list, search or auto" in (await running.post("tools/call", call, gatehouse_tools="serch")).text


async def test_search_needs_the_scope_of_lists(running: Running) -> None:
    key = await running.new_key(scopes=("mcp:call",))
    call: Json = {"name": "search_tools", "arguments": {"query": "issue"}}
    answer = (await running.as_(key).post("tools/call", call, path="/mcp/plain")).json()
    assert "mcp:list" in json.dumps(answer["error"])


async def test_search_tools_are_described_with_the_namespaces_of_the_caller(running: Running) -> None:
    answer = (await running.post("tools/list", path="/mcp/found")).json()["result"]
    assert "tickets (2)" in answer["tools"][0]["description"]
    assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "gatehouse"
