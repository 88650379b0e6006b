"""The requirements of the Roblox contract, each with a check that verifies it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import MCPError

from tests.backends.roblox.harness import MODERN

Json = dict[str, Any]
Check = Callable[[Any, str], Awaitable[None]]
ROWS: list[tuple[str, Check]] = []

ALWAYS = {
    "core.ping",
    "project.workspace_stats",
    *(f"workflow.{n}" for n in ("run", "status", "cancel", "list", "logs")),
}
GATED = {
    "roblox.bridge_ping",
    *(f"roblox.script_{n}" for n in ("create", "update", "delete", "get_source", "execute")),
    *(f"roblox.instance_{n}" for n in ("create", "set_property", "delete", "get", "list_children", "find")),
}
SOURCE = "return {add = function(a, b) return a + b end, nothing = function() end}"
SNAPSHOT = {
    *("runId", "workflowId", "correlationId", "status", "startedAt", "endedAt"),
    *("totalSteps", "completedSteps", "cancelRequested"),
}
WAIT = {"waitMs": 20_000}


def requirement(sentence: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        ROWS.append((sentence, check))
        return check

    return add


async def _call(client: Any, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
    result = await client.call_tool(tool, arguments or {}, meta=meta or None)
    assert not result.is_error
    return result.structured_content


async def _refused(client: Any, tool: str, arguments: Json | None = None, **meta: Any) -> Any:
    with pytest.raises(MCPError) as caught:
        await client.call_tool(tool, arguments or {}, meta=meta or None)
    return caught.value.error


async def _read(client: Any, uri: str) -> Json:
    return json.loads((await client.read_resource(uri)).contents[0].text)


async def _module(client: Any, source: str = SOURCE) -> str:
    arguments = {"parentPath": "ServerScriptService", "name": "M", "scriptType": "ModuleScript", "source": source}
    return (await _call(client, "roblox.script_create", arguments))["output"]["instanceId"]


async def _workflow(client: Any, *steps: Json, **more: Any) -> Json:
    return await _call(client, "workflow.run", {"definition": {"id": "w", "steps": list(steps)}, **WAIT, **more})


def _number(era: str, handshake: int, modern: int) -> int:
    return modern if era == MODERN else handshake


@requirement("Protocol: MCP over JSON-RPC 2.0; tools and resources are offered.")
async def _protocol(client: Any, era: str) -> None:
    assert (await client.list_tools()).tools
    assert (await client.list_resources()).resources


@requirement("Always available tools and bridge-gated tools are listed under their ids.")
async def _catalogue(client: Any, era: str) -> None:
    listed = {tool.meta["gatehouse/id"] for tool in (await client.list_tools()).tools}
    ours = {name for name in listed if not name.startswith("sandbox.")}
    assert ours == ALWAYS | GATED | {"roblox.list_studios"}


@requirement("Available resources are gox://status, gox://runs and gox://runs/{runId}.")
async def _resources(client: Any, era: str) -> None:
    assert {str(each.uri) for each in (await client.list_resources()).resources} == {"gox://status", "gox://runs"}
    (template,) = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "gox://runs/{runId}"


@requirement("gox://status is a server status summary.")
async def _status(client: Any, era: str) -> None:
    assert (await _read(client, "gox://status")).keys() >= {"version", "actionsCount", "serverTime"}


@requirement("gox://runs has recent runlog records, gox://runs/{runId} a single one by id.")
async def _runs(client: Any, era: str) -> None:
    run_id = (await _call(client, "core.ping"))["runId"]
    first = (await _read(client, "gox://runs"))["runs"][0]
    assert first["runId"] == run_id
    assert await _read(client, f"gox://runs/{run_id}") == first


@requirement("Successful tools/call structured output of an action is {runId, output, diff {summary, entries}}.")
async def _envelope(client: Any, era: str) -> None:
    arguments = {"parentPath": "Workspace", "className": "Part", "name": "P"}
    envelope = await _call(client, "roblox.instance_create", arguments)
    assert envelope.keys() == {"runId", "output", "diff"}
    assert envelope["diff"] == {"summary": "create Part Workspace.P", "entries": []}


@requirement("Read/query actions typically return diff: null.")
async def _no_diff(client: Any, era: str) -> None:
    assert (await _call(client, "roblox.instance_get", {"instancePath": "Workspace"}))["diff"] is None


@requirement("script_execute needs one of scriptPath or scriptId.")
async def _target(client: Any, era: str) -> None:
    assert (await _refused(client, "roblox.script_execute", {"functionName": "add"})).code == -32602


@requirement("functionName is optional; called is true when it was invoked.")
async def _called(client: Any, era: str) -> None:
    at = {"scriptId": await _module(client)}
    whole = (await _call(client, "roblox.script_execute", at))["output"]
    assert (whole["executed"], whole["called"]) == (True, False)
    call = {**at, "functionName": "add", "args": [2, 40]}
    output = (await _call(client, "roblox.script_execute", call))["output"]
    assert output == {
        "executed": True,
        "called": True,
        "path": "ServerScriptService.M",
        "instanceId": at["scriptId"],
        "returnValue": 42,
    }


@requirement("args is only used with functionName.")
async def _args(client: Any, era: str) -> None:
    at = {"scriptId": await _module(client, "return (...) == nil or typeof(...) == 'Instance'"), "args": [1]}
    assert (await _call(client, "roblox.script_execute", at))["output"]["returnValue"] is True


@requirement("forceRequire is an optional bool.")
async def _force(client: Any, era: str) -> None:
    at = {"scriptId": await _module(client, "_G.count = (_G.count or 0) + 1 return _G.count")}
    values = [(await _call(client, "roblox.script_execute", at | m))["output"]["returnValue"] for m in ({}, {})]
    forced = await _call(client, "roblox.script_execute", {**at, "forceRequire": True})
    assert [*values, forced["output"]["returnValue"]] == [1, 1, 2]


@requirement("Dry-run output has dryRun, path and instanceId.")
async def _dry_run(client: Any, era: str) -> None:
    at = {"scriptId": await _module(client)}
    output = (await _call(client, "roblox.script_execute", at, dryRun=True))["output"]
    assert {"dryRun": True, "path": "ServerScriptService.M", "instanceId": at["scriptId"]}.items() <= output.items()
    assert "executed" not in output


@requirement("expectReturn=true fails with validation error if returnValue is nil.")
async def _expect(client: Any, era: str) -> None:
    arguments = {"scriptId": await _module(client), "functionName": "nothing", "expectReturn": True}
    error = await _refused(client, "roblox.script_execute", arguments)
    assert (error.code, error.data["code"]) == (-32602, "VALIDATION_ERROR")


@requirement("functionName fails with not-found error if it is not exported by the required module value.")
async def _exported(client: Any, era: str) -> None:
    arguments = {"scriptId": await _module(client), "functionName": "nope"}
    error = await _refused(client, "roblox.script_execute", arguments)
    assert (error.code, error.data["code"]) == (_number(era, -32044, 404), "NOT_FOUND")


@requirement("Use action id roblox.script_execute (underscore), not roblox.script.execute.")
async def _underscore(client: Any, era: str) -> None:
    assert (await _refused(client, "roblox.script.execute", {"scriptPath": "x"})).code == -32602


@requirement("Each step may include optional when: stepId, path, equals; when it does not match, the step is skipped.")
async def _when(client: Any, era: str) -> None:
    when = {"stepId": "a", "path": "ok", "equals": False}
    arguments = {"parentPath": "Workspace", "className": "Part", "name": "Skipped"}
    steps = [
        {"id": "a", "actionId": "core.ping"},
        {"actionId": "roblox.instance_create", "input": arguments, "when": when},
    ]
    assert (await _workflow(client, *steps))["completedSteps"] == 2
    found = await _call(client, "roblox.instance_find", {"rootPath": "game", "nameContains": "Skipped"})
    assert found["output"]["matches"] == []


@requirement("stepId and equals are required in when, path is optional and is then the whole output.")
async def _when_fields(client: Any, era: str) -> None:
    first = {"id": "a", "actionId": "roblox.instance_get", "input": {"instancePath": "Workspace"}}
    for when in ({"equals": 1}, {"stepId": "a"}):
        steps = [first, {"actionId": "core.ping", "when": when}]
        error = await _refused(client, "workflow.run", {"definition": {"id": "w", "steps": steps}})
        assert (error.code, error.data["validation_rule"]) == (-32602, "required")
    whole = (await _call(client, "roblox.instance_get", {"instancePath": "Workspace"}))["output"]
    steps = [first, {"id": "b", "actionId": "core.ping", "when": {"stepId": "a", "equals": whole}}]
    done = await _workflow(client, *steps)
    logs = (await _call(client, "workflow.logs", {"runId": done["runId"], "stepId": "b"}))["logs"]
    assert "step completed" in [line["message"] for line in logs]


@requirement("workflow.run and workflow.status return a workflow run snapshot.")
async def _snapshot(client: Any, era: str) -> None:
    done = await _workflow(client, {"actionId": "core.ping"})
    assert done.keys() == SNAPSHOT
    assert (done["workflowId"], done["status"]) == ("w", "succeeded")
    assert await _call(client, "workflow.status", {"runId": done["runId"]}) == done


@requirement("A snapshot has optional lastError (code, message).")
async def _last_error(client: Any, era: str) -> None:
    done = await _workflow(client, {"actionId": "roblox.instance_get", "input": {"instancePath": "No.Where"}})
    assert done["lastError"] == {"code": "NOT_FOUND", "message": "instance not found"}


@requirement("workflow.cancel returns the snapshot plus acknowledged.")
async def _cancel(client: Any, era: str) -> None:
    done = await _workflow(client, {"actionId": "core.ping"})
    assert await _call(client, "workflow.cancel", {"runId": done["runId"]}) == {**done, "acknowledged": False}


@requirement("workflow.list returns runs and optional nextCursor.")
async def _list(client: Any, era: str) -> None:
    done = [await _workflow(client, {"actionId": "core.ping"}) for _ in range(2)]
    page = await _call(client, "workflow.list", {"limit": 1})
    assert page["runs"] == [done[1]]
    assert (await _call(client, "workflow.list", {"limit": 1, "cursor": page["nextCursor"]}))["runs"] == [done[0]]


@requirement("workflow.logs returns runId and logs with timestamp, level, message, optional stepId, actionId.")
async def _logs(client: Any, era: str) -> None:
    done = await _workflow(client, {"id": "a", "actionId": "core.ping"})
    answer = await _call(client, "workflow.logs", {"runId": done["runId"]})
    assert answer["runId"] == done["runId"]
    assert answer["logs"][0].keys() == {"timestamp", "level", "message"}
    assert {"stepId": "a", "actionId": "core.ping"}.items() <= answer["logs"][1].items()


@requirement(
    "Supported request metadata for action tools: actor, correlationId, dryRun and approved, bool or bool-like."
)
async def _metadata(client: Any, era: str) -> None:
    arguments = {"parentPath": "Workspace", "className": "Part", "name": "P"}
    meta = {"actor": "ann", "correlationId": "corr-7", "dryRun": "T", "approved": "1"}
    envelope = await _call(client, "roblox.instance_create", arguments, **meta)
    assert envelope["output"]["dryRun"] is True
    assert (await _read(client, f"gox://runs/{envelope['runId']}"))["correlationId"] == "corr-7"


@requirement("Workflow run control fields are passed in arguments for workflow.run.")
async def _control(client: Any, era: str) -> None:
    arguments = {"parentPath": "Workspace", "className": "Part", "name": "Dry"}
    control = {"actor": "ann", "correlationId": "corr-8", "dryRun": True, "approved": True}
    done = await _workflow(client, {"actionId": "roblox.instance_create", "input": arguments}, **control)
    assert (done["status"], done["correlationId"]) == ("succeeded", "corr-8")
    found = await _call(client, "roblox.instance_find", {"rootPath": "game", "nameContains": "Dry"})
    assert found["output"]["count"] == 0


@requirement("Action tools include gox:version, gox:sideEffectLevel, gox:supportsDryRun and gox:requiresBridge.")
async def _action_keys(client: Any, era: str) -> None:
    keys = {f"gox:{key}" for key in ("version", "sideEffectLevel", "supportsDryRun", "requiresBridge")}
    for tool in (await client.list_tools()).tools:
        if not tool.name.startswith("workflow"):
            assert keys <= tool.meta.keys(), tool.name


@requirement("Workflow tools include gox:type = workflow.")
async def _workflow_keys(client: Any, era: str) -> None:
    tools = [tool for tool in (await client.list_tools()).tools if tool.name.startswith("workflow")]
    assert [tool.meta["gox:type"] for tool in tools] == ["workflow"] * 5


@requirement("Validation faults are -32602, with validation_path and validation_rule when available.")
async def _validation(client: Any, era: str) -> None:
    arguments = {"parentPath": "W", "name": "S", "scriptType": "Other", "source": ""}
    error = await _refused(client, "roblox.script_create", arguments)
    assert error.code == -32602
    assert (error.data["validation_path"], error.data["validation_rule"]) == ("input.scriptType", "enum")


@requirement("Not found faults are -32044.")
async def _not_found(client: Any, era: str) -> None:
    error = await _refused(client, "roblox.instance_get", {"instancePath": "No"})
    assert (error.code, error.data["code"]) == (_number(era, -32044, 404), "NOT_FOUND")


@requirement("Denied faults are -32043.")
async def _denied(client: Any, era: str) -> None:
    error = await _refused(client, "sandbox.fail", {"kind": "denied"})
    assert (error.code, error.data["code"]) == (_number(era, -32043, 403), "ACCESS_DENIED")


@requirement("Unimplemented faults are -32041.")
async def _unimplemented(client: Any, era: str) -> None:
    error = await _refused(client, "sandbox.fail", {"kind": "unsupported"})
    assert (error.code, error.data["code"]) == (_number(era, -32041, 501), "UNIMPLEMENTED")


@requirement("Error data has code, category, retryable, correlation_id and details.")
async def _data(client: Any, era: str) -> None:
    error = await _refused(client, "roblox.instance_get", {"instancePath": "No"}, correlationId="corr-9")
    assert {"code", "category", "retryable", "correlation_id", "details"} <= error.data.keys()
    assert error.data["correlation_id"] == "corr-9"


@requirement("Everything else is a JSON-RPC internal error.")
async def _internal(client: Any, era: str) -> None:
    error = await _refused(client, "roblox.script_execute", {"scriptId": await _module(client, "error('x')")})
    assert (error.code, error.data["code"]) == (-32603, "INTERNAL_ERROR")


@requirement("Max payload size per tools/call: violations return -32602.")
async def _payload(client: Any, era: str) -> None:
    arguments = {"scriptPath": "x", "source": "x" * 1_100_000}
    error = await _refused(client, "roblox.script_update", arguments)
    assert error.code == -32602
    assert error.data["payload_bytes"] > error.data["max_bytes"]


REQUIRED = {
    "script_create": {"name", "scriptType", "source"},
    "script_update": {"source"},
    "instance_create": {"className", "name"},
    "instance_set_property": {"propertyName", "value"},
    "run": {"definition"},
    **{name: {"runId"} for name in ("status", "cancel", "logs")},
}


@requirement("Existing tool IDs and required fields should not be changed.")
async def _stable(client: Any, era: str) -> None:
    for tool in (await client.list_tools()).tools:
        space, name = tool.meta["gatehouse/id"].split(".")
        if space != "sandbox":
            assert set(tool.input_schema.get("required", ())) == REQUIRED.get(name, set()), name


@requirement("roblox.instance_find.maxResults is an alias of limit (do not send both).")
async def _alias(client: Any, era: str) -> None:
    arguments = {"rootPath": "game", "className": "Workspace"}
    found = await _call(client, "roblox.instance_find", {**arguments, "maxResults": 1})
    assert (found["output"]["limit"], found["output"]["count"]) == (1, 1)
    both = await _refused(client, "roblox.instance_find", {**arguments, "maxResults": 1, "limit": 1})
    assert (both.code, both.data["code"]) == (-32602, "VALIDATION_ERROR")
