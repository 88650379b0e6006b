"""Virtual servers and backends that an operator has shaped, as clients of both eras see and use them."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import TextContent, TextResourceContents

from tests.conftest import Running, Start

Json = dict[str, Any]

TICKETS = {"module": "tests.flows.fixtures.tickets"}
SUPPORT: Json = {
    "backends": ["tickets", "core", "workflow"],
    "tools": [
        {"deny": "tickets.delete_*"},
        {
            "allow": "tickets.create_issue",
            "name": "report_problem",
            "title": "Report a problem",
            "description": "Report a problem to the support team.",
            "set": {"project": "SUP"},
            "hide": ["labels"],
        },
        {"allow": "tickets.*"},
        {"allow": "workflow.*"},
    ],
    "prompts": [{"allow": "tickets.triage", "name": "sort", "description": "Sort an issue."}],
    "resources": [{"deny": "tickets:tickets://secret*"}],
    "instructions": "Be kind.",
}
SHAPED = "/mcp/support"
FORMS = ("report_problem", "tickets.create_issue", "tickets_create_issue")


async def read_instructions(running: Running, client: Client, path: str) -> str | None:
    """What `initialize` returned, or what `server/discover` returns."""
    if client.instructions is not None:
        return client.instructions
    return (await running.post("server/discover", path=path)).json()["result"]["instructions"]


@pytest.fixture
async def shaped(start: Start) -> AsyncIterator[Running]:
    core, workflow = {"module": "backends.core"}, {"module": "backends.workflow"}
    backends = {"tickets": TICKETS, "core": core, "workflow": workflow}
    async with start(backends=backends, servers={"support": SUPPORT}) as running:
        yield running


async def test_only_the_allowed_tools_are_listed_as_their_rules_say(shaped: Running, era: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert [name for name in tools if not name.startswith("workflow_")] == ["report_problem", "tickets_get_issue"]
    tool = tools["report_problem"]
    assert (tool.title, tool.description) == ("Report a problem", "Report a problem to the support team.")
    assert set(tool.input_schema["properties"]) == {"summary", "priority"}
    assert tool.input_schema["required"] == ["summary"]
    assert tool.meta is not None
    assert tool.meta["gatehouse/id"] == "tickets.create_issue"


@pytest.mark.parametrize("name", FORMS)
async def test_every_form_of_the_name_leads_to_the_shaped_tool(shaped: Running, era: str, name: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        result = await client.call_tool(name, {"summary": "It is broken."})
        assert result.structured_content == {
            "project": "SUP",
            "summary": "It is broken.",
            "labels": None,
            "priority": 1,
        }
        for withheld in ({"project": "OPS"}, {"project": "SUP"}, {"labels": ["x"]}):
            refused = await client.call_tool(name, {"summary": "s", **withheld})
            assert refused.is_error
            block = refused.content[0]
            assert isinstance(block, TextContent)
            assert f"{next(iter(withheld))} is not an argument of this tool here" in block.text


@pytest.mark.parametrize("name", ["tickets.delete_issue", "tickets_delete_issue", "delete_issue", "core_health"])
async def test_denied_and_unmatched_tools_are_unknown(shaped: Running, era: str, name: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
            await client.call_tool(name, {"id": 1})


async def test_other_endpoints_are_not_affected(shaped: Running, era: str) -> None:
    async with shaped.client(era) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"tickets_create_issue", "tickets_delete_issue"} <= names
        assert "report_problem" not in names
        result = await client.call_tool("tickets_create_issue", {"project": "OPS", "summary": "s"})
        assert result.structured_content is not None
        assert result.structured_content["project"] == "OPS"


async def test_prompts_resources_and_instructions_are_shaped(shaped: Running, era: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        assert await read_instructions(shaped, client, SHAPED) == "Be kind."
        prompts = (await client.list_prompts()).prompts
        assert [(prompt.name, prompt.description) for prompt in prompts] == [("sort", "Sort an issue.")]
        for name in ("sort", "tickets.triage", "tickets_triage"):
            message = (await client.get_prompt(name, {"issue": "7"})).messages[0]
            assert isinstance(message.content, TextContent)
            assert message.content.text == "Triage 7."
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("tickets.escalate", {"issue": "7"})
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert uris == ["gatehouse://tickets/tickets%3A%2F%2Fopen", *uris[1:]]
        assert not any("secret" in uri for uri in uris)
        contents = (await client.read_resource(uris[0])).contents[0]
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "open issues"
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("gatehouse://tickets/tickets%3A%2F%2Fsecret")


async def test_steps_of_a_workflow_started_at_a_shaped_server_stay_in_it(shaped: Running, era: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        for form in FORMS:
            assert '"project": "SUP"' in await run_workflow(client, form, summary="s")
        for denied in ("tickets.delete_issue", "core.health"):
            with pytest.raises(MCPError, match="is not registered"):
                await run_workflow(client, denied, id=1)
    async with shaped.client(era) as client:
        assert '"deleted": 1' in await run_workflow(client, "tickets.delete_issue", id=1)


async def run_workflow(client: Client, action: str, **input: Any) -> str:
    """Run a workflow of one step and return its outputs as JSON."""
    definition = {"id": "w", "steps": [{"id": "only", "actionId": action, "input": input}]}
    run = await client.call_tool("workflow.run", {"definition": definition, "waitMs": 20_000})
    assert run.structured_content is not None
    status = {"runId": run.structured_content["runId"], "includeOutputs": True}
    return json.dumps((await client.call_tool("workflow.status", status)).structured_content)


async def test_audit_sees_the_canonical_id_and_the_fixed_arguments(shaped: Running, era: str, tmp_path: Path) -> None:
    async with shaped.client(era, SHAPED) as client:
        await client.call_tool("report_problem", {"summary": "s"})
    async with shaped.client(era) as client:
        await client.call_tool("tickets_create_issue", {"project": "SUP", "summary": "s"})
    await shaped.app.audit.flush()
    with closing(sqlite3.connect(tmp_path / "data" / "audit.db")) as database:
        query = "SELECT target, outcome, arguments_digest FROM audit WHERE method = 'tools/call'"
        rows = database.execute(query).fetchall()
    assert [target for target, outcome, _ in rows if outcome == "ok"] == ["tickets.create_issue"] * 2
    assert len({digest for _, _, digest in rows}) == 1


async def test_only_the_named_tenants_reach_a_server_or_a_backend(start: Start, era: str) -> None:
    servers = {"support": {"backends": ["tickets"], "tenants": ["support"]}}
    backends = {"tickets": TICKETS, "extra": {**TICKETS, "tenants": ["support"]}}
    tenants: Json = {"default": {}, "support": {}}
    async with start(backends=backends, servers=servers, tenants=tenants) as running:
        member = running.as_(await running.new_key("support"))
        async with member.client(era, SHAPED) as client:
            assert len((await client.list_tools()).tools) == 3
        async with member.client(era) as client:
            assert len((await client.list_tools()).tools) == 6
        async with running.client(era) as client:
            assert len((await client.list_tools()).tools) == 3
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("extra.get_issue", {"id": 1})
        for path in (SHAPED, "/mcp/extra"):
            assert (await running.post("tools/list", path=path)).status_code == 404


async def test_keys_of_a_backend_entry_apply_at_every_endpoint(start: Start, era: str) -> None:
    entry: Json = {
        **TICKETS,
        "tools": [
            {"allow": "tickets.create_issue", "name": "report", "set": {"project": "SUP"}},
            {"deny": "tickets.delete_*"},
            {"allow": "*"},
        ],
        "prompts": [{"deny": "tickets.escalate"}],
        "resources": [{"deny": "tickets:tickets://secret"}],
        "instructions": "Shaped.",
    }
    servers: Json = {"desk": {"backends": ["tickets"], "names": "dotted"}}
    async with start(backends={"tickets": entry}, servers=servers) as running:
        for path, name in (("/mcp", "tickets_report"), ("/mcp/tickets", "report"), ("/mcp/desk", "tickets.report")):
            async with running.client(era, path) as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                assert listed[0] == name
                assert not any("delete" in tool for tool in listed)
                for form in (name, "tickets.create_issue", "tickets_create_issue"):
                    result = await client.call_tool(form, {"summary": "s"})
                    assert result.structured_content is not None
                    assert result.structured_content["project"] == "SUP"
                with pytest.raises(MCPError, match="Unknown tool"):
                    await client.call_tool("tickets.delete_issue", {"id": 1})
                assert [prompt.name[-6:] for prompt in (await client.list_prompts()).prompts] == ["triage"]
                assert len((await client.list_resources()).resources) == 1
                assert "Shaped." in (await read_instructions(running, client, path) or "")


async def test_tool_whose_fixed_argument_is_invalid_is_left_out_and_logged(
    start: Start, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [
        {"allow": "tickets.create_issue", "set": {"priority": "high"}},
        {"allow": "tickets.delete_issue", "hide": ["id"]},
        {"allow": "tickets.*"},
    ]
    servers = {"support": {"backends": ["tickets"], "tools": rules}}
    async with start(backends={"tickets": TICKETS}, servers=servers) as running:
        async with running.client(era, SHAPED) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["tickets_get_issue"]
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("tickets.create_issue", {"project": "p", "summary": "s"})
        assert "tickets.create_issue: set: 'priority' has an invalid value" in caplog.text
        assert "tickets.delete_issue: hide: 'id' is required" in caplog.text


# ---- boundaries


async def test_threat_65_key_for_a_virtual_server_reaches_no_other_endpoint(shaped: Running, era: str) -> None:
    confined = shaped.as_(await shaped.new_key(endpoint=SHAPED))
    async with confined.client(era, SHAPED) as client:
        assert not (await client.call_tool("report_problem", {"summary": "s"})).is_error
    for path in ("/mcp", "/mcp/tickets", "/mcp/core"):
        assert (await confined.post("tools/list", path=path)).status_code in (401, 403)


async def test_threat_65_tool_denied_in_the_entry_of_a_backend_is_reachable_nowhere(start: Start, era: str) -> None:
    """Not at any endpoint, in any form of its name, by search or by a step of a workflow."""
    entry = {**TICKETS, "tools": [{"deny": "tickets.delete_*"}]}
    backends: Json = {"tickets": entry, "workflow": {"module": "backends.workflow"}}
    servers: Json = {
        mode: {
            "backends": ["tickets", "workflow"],
            "names": mode,
            "tools": {"view": "search", "rules": [{"allow": "*"}]},
        }
        for mode in ("underscore", "dotted")
    }
    async with start(backends=backends, servers=servers) as running:
        for path in ("/mcp", "/mcp/tickets", "/mcp/underscore", "/mcp/dotted"):
            async with running.client(era, path) as client:
                for name in ("tickets.delete_issue", "tickets_delete_issue", "delete_issue"):
                    with pytest.raises(MCPError, match="Unknown tool"):
                        await client.call_tool(name, {"id": 1})
                    if path not in ("/mcp", "/mcp/tickets"):
                        with pytest.raises(MCPError, match="Unknown tool"):
                            await client.call_tool("call_tool", {"name": name, "arguments": {"id": 1}})
                if path != "/mcp/tickets":
                    with pytest.raises(MCPError, match="is not registered"):
                        await run_workflow(client, "tickets.delete_issue", id=1)


async def test_threat_66_caller_cannot_override_a_fixed_argument(shaped: Running, era: str) -> None:
    async with shaped.client(era, SHAPED) as client:
        for form in FORMS:
            assert (await client.call_tool(form, {"summary": "s", "project": "OPS"})).is_error
        refused = {"steps": [{"id": "a", "actionId": FORMS[0], "input": {"summary": "s", "project": "OPS"}}], "id": "w"}
        run = await client.call_tool("workflow.run", {"definition": refused, "waitMs": 20_000})
        assert run.structured_content is not None
        assert run.structured_content["status"] == "failed"


async def test_threat_67_search_finds_nothing_that_the_list_of_the_caller_does_not_show(start: Start, era: str) -> None:
    tenants: Json = {"default": {}, "narrow": {"backends": ["core"]}}
    servers: Json = {"found": {"backends": ["tickets", "core"], "tools": "search"}}
    backends = {"tickets": TICKETS, "core": {"module": "backends.core"}}
    async with start(backends=backends, servers=servers, tenants=tenants) as running:
        narrow = running.as_(await running.new_key("narrow"))
        for who, expected in ((running, True), (narrow, False)):
            async with who.client(era, "/mcp/found") as client:
                for query in ("issue", "tickets", "create an issue"):
                    found = await client.call_tool(
                        "search_tools", {"query": query, "kinds": ["tool", "prompt", "resource"]}
                    )
                    assert ("tickets" in str(found.content)) == expected
                described = await client.call_tool("describe_tools", {"names": ["tickets.get_issue"]})
                assert ("inputSchema" in str(described.content)) == expected
                listed = str((await client.list_tools()).tools)
                assert ("tickets (3)" in listed) == expected
