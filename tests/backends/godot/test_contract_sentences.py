"""One row for every statement of the two contracts, with a check through the gateway.

The SDK client makes every call, in both protocol eras. test_engine.py covers statements about the engine, and
test_contract.py covers rate limits.
"""

import json
import re
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest

from tests.backends.godot.conftest import GodotHarness
from tests.mcp_results import list_all_tools

Json = dict[str, Any]
SCENE = {"scenePath": "main.tscn"}
CODES = {
    "E_SCHEMA_VALIDATION", "E_NOT_CONNECTED", "E_NOT_FOUND", "E_PERMISSION_DENIED", "E_TIMEOUT", "E_UNSUPPORTED",
    "E_INTERNAL",
}  # fmt: skip


@dataclass(frozen=True)
class SdkHarness(GodotHarness):
    """The harness with calls made by the SDK client."""

    client: Any = None

    async def _post(self, name: str, arguments: Json) -> Json:
        return {"result": (await self.client.call_tool(name, arguments)).model_dump(by_alias=True, exclude_none=True)}


@dataclass
class CheckInput:
    """Input of the checks: the tools by name, one successful and one failed response."""

    harness: Any
    tools: dict[str, Json]
    success: Json
    failure: Json


Check = Callable[[CheckInput], Awaitable[bool]]
ROWS: list[tuple[str, Check]] = []


def statement(text: str) -> Callable[[Callable[[CheckInput], Any]], Any]:
    def add(check: Callable[[CheckInput], Any]) -> Any:
        async def run(check_input: CheckInput) -> bool:
            found = check(check_input)
            return bool(await found) if hasattr(found, "__await__") else bool(found)

        ROWS.append((text, run))
        return check

    return add


def all_tools(check_input: CheckInput, test: Callable[[Json], Any]) -> bool:
    return all(test(tool) for tool in check_input.tools.values())


# ---- tools, answers and read-only mode ----
statement("A tool has a unique snake_case name.")(
    lambda w: all_tools(w, lambda t: re.fullmatch(r"[a-z][a-z0-9_]*", t["name"]))
)
statement("A tool has a human-readable description.")(lambda w: all_tools(w, lambda t: len(t["description"]) > 10))
statement("inputSchema is an object with properties and required.")(
    lambda w: all_tools(w, lambda t: {"type", "properties", "required"} <= set(t["inputSchema"]))
)
statement("A tool may have a title, an outputSchema and annotations: every tool here has all three.")(
    lambda w: all_tools(w, lambda t: {"title", "outputSchema", "annotations"} <= set(t))
)
statement("A success has text content and isError false.")(
    lambda w: w.success["content"][0]["type"] == "text" and w.success["isError"] is False
)
statement("With an outputSchema a success has structuredContent.")(
    lambda w: w.success["structuredContent"]["ok"] is True
)
statement("An error has its message as text and isError true.")(
    lambda w: (
        w.failure["isError"] is True
        and w.failure["content"][0]["text"] == w.failure["structuredContent"]["error"]["message"]
    )
)


@statement("MUST validate all tool inputs against inputSchema, before anything is executed.")
async def _(w: CheckInput) -> bool:
    failure = {**SCENE, "nodeType": 1, "nodeName": "A"}
    return await w.harness.error_code("add_node", **failure) == "E_SCHEMA_VALIDATION" and "A" not in tree(w)


@statement("MUST implement access controls: a path outside the tenant's roots is denied.")
async def _(w: CheckInput) -> bool:
    return await w.harness.error_code("list_scenes", projectPath="/etc") == "E_PERMISSION_DENIED"


@statement("MUST sanitise outputs: invalid UTF-8 is returned as valid JSON.")
async def _(w: CheckInput) -> bool:
    (w.harness.project / "odd.tscn").write_bytes(b'[gd_scene format=3]\n\n[node name="\xff" type="Node"]\n')
    found = await w.harness.call_ok("godot_asset_manager", action="scene.read", scenePath="odd.tscn")
    (w.harness.project / "odd.tscn").unlink()
    return "type=" in found["content"]


@statement("SHOULD give clear messages with actionable hints.")
def _(w: CheckInput) -> bool:
    return len(w.failure["structuredContent"]["error"]["suggestedFix"]) > 10


@statement("SHOULD use structured output schemas: errors match them as well as successes.")
def _(w: CheckInput) -> bool:
    schema = w.tools["get_node_tree"]["outputSchema"]
    return all(set(schema["required"]) <= set(each["structuredContent"]) for each in (w.success, w.failure))


@statement("Single responsibility: a tool performs one operation; a manager selects it with action.")
def _(w: CheckInput) -> bool:
    return all("action" in tool["inputSchema"]["properties"] for name, tool in w.tools.items() if "manager" in name)


@statement("Content is of the supported types.")
def _(w: CheckInput) -> bool:
    kinds = {block["type"] for each in (w.success, w.failure) for block in each["content"]}
    return kinds <= {"text", "image", "audio", "resource_link", "resource"}


@statement("Idempotency: the same query returns the same result.")
async def _(w: CheckInput) -> bool:
    return await w.harness.call_ok("get_node_tree", **SCENE) == await w.harness.call_ok("get_node_tree", **SCENE)


@statement("Graceful degradation: without an engine a scene is still edited, with a warning.")
async def _(w: CheckInput) -> bool:
    envelope = await w.harness.call("add_node", **SCENE, nodeType="Node", nodeName="Plain")
    return envelope["execution"]["executor"] == "files" and "engine" in envelope["warnings"][0]


@statement("Log all operations.")
async def _(w: CheckInput) -> bool:
    before = len(audit(w))
    await w.harness.call("list_scenes")
    return len(audit(w)) == before + 1


@statement("Never expose internal details: no server path or exception text in an error.")
def _(w: CheckInput) -> bool:
    shown = json.dumps(w.failure["structuredContent"]["error"])
    return str(w.harness.files) not in shown and "Traceback" not in shown and "Errno" not in shown


@statement("Errors have one format: the gateway and the backend use the same keys.")
async def _(w: CheckInput) -> bool:
    by_gateway = await w.harness.call("add_node")
    by_backend = await w.harness.call("read_script", scriptPath="../x.gd")
    return set(by_gateway) == set(by_backend) and {"code", "message", "retryable", "suggestedFix"} <= set(
        by_gateway["error"]
    ) & set(by_backend["error"])


@statement("Tools, resources, prompts and logging are declared as capabilities.")
async def _(w: CheckInput) -> bool:
    async with w.harness.gateway.client("legacy") as client:
        offered = client.server_capabilities
    assert offered.tools.list_changed
    return None not in (offered.resources, offered.prompts, offered.logging)


@statement("All scene-modifying tools require projectPath and scenePath.")
def _(w: CheckInput) -> bool:
    names = ("add_node", "edit_node", "remove_node", "rename_node", "move_node", "duplicate_node", "instance_scene")
    needed = {"projectPath", "scenePath"}
    return all(needed <= set(w.tools[name]["inputSchema"]["required"]) for name in names)


@statement("Names start with a verb, or with what they manage.")
def _(w: CheckInput) -> bool:
    verbs = (
        "create add set get remove list edit rename move duplicate instance connect manage load attach detach export"
    )
    verbs += (
        " update read write delete import reimport batch run stop start launch take capture validate convert generate"
    )
    verbs += " save system godot meta blend setup bake configure paint"
    return {name.split("_")[0] for name in w.tools} <= set(verbs.split())


@statement("projectPath is absolute, scenePath relative to it.")
async def _(w: CheckInput) -> bool:
    relative = await w.harness.error_code("list_scenes", projectPath="meadow")
    absolute = await w.harness.error_code("get_node_tree", scenePath="/main.tscn")
    return {relative, absolute} == {"E_PERMISSION_DENIED"}


@statement("In read-only mode write tools are filtered from listings, and their calls are denied.")
async def _(w: CheckInput) -> bool:
    key = await w.harness.gateway.new_key("quiet")
    async with w.harness.gateway.as_(key).client() as client:
        names = {tool.name for tool in await list_all_tools(client)}
        refused = await client.call_tool("godot_write_script", {"projectPath": "/x", "scriptPath": "a", "content": ""})
    exports = {"godot_export_project", "godot_export_pack"}
    assert refused.structured_content["error"]["code"] == "E_PERMISSION_DENIED"
    return {"godot_get_node_tree", *exports} <= names and not {"godot_add_node", "godot_write_script"} & names


@statement("Read-only tools are the queries and exports; the others modify files.")
def _(w: CheckInput) -> bool:
    hints = {name: tool["annotations"]["readOnlyHint"] for name, tool in w.tools.items()}
    return hints["get_node_tree"] and hints["list_scenes"] and not hints["add_node"] and not hints["write_script"]


# ---- the envelope ----
statement("ok and summary are always present.")(
    lambda w: all(each["structuredContent"]["summary"] for each in (w.success, w.failure))
)
statement("result defaults to details when ok.")(
    lambda w: w.success["structuredContent"]["result"] == w.success["structuredContent"]["details"]
)
statement("result is null when not ok.")(lambda w: w.failure["structuredContent"]["result"] is None)
statement("error is null when ok, and always present when not.")(
    lambda w: (
        w.success["structuredContent"]["error"] is None and w.failure["structuredContent"]["error"]["code"] in CODES
    )
)
statement("meta has tool, action, correlationId and durationMs.")(
    lambda w: all(
        set(each["structuredContent"]["meta"]) == {"tool", "action", "correlationId", "durationMs"}
        for each in (w.success, w.failure)
    )
)
statement("errors lists code and message.")(
    lambda w: w.failure["structuredContent"]["errors"][0].keys() == {"code", "message"}
)


@statement("files have kind, pathAbs, resPath and bytes.")
async def _(w: CheckInput) -> bool:
    envelope = await w.harness.call("write_script", scriptPath="f.gd", content="extends Node\n", overwrite=True)
    return envelope["files"][0] == {
        "kind": "script", "pathAbs": str(w.harness.project / "f.gd"), "resPath": "res://f.gd", "bytes": 13,
    }  # fmt: skip


@statement("Every call has a correlation id, in meta and in the project's audit.log.")
async def _(w: CheckInput) -> bool:
    envelope = await w.harness.call("list_scenes")
    return audit(w)[-1]["correlationId"] == envelope["meta"]["correlationId"]


@statement("logs and warnings are lists of text, execution an object.")
async def _(w: CheckInput) -> bool:
    envelope = await w.harness.call("edit_node", **SCENE, nodePath="Player", properties={"rotation": 1})
    texts = [*envelope.get("logs", []), *envelope["warnings"]]
    return all(isinstance(text, str) for text in texts) and isinstance(envelope["execution"], dict)


@statement("An error has code, message, details, retryable and suggestedFix.")
async def _(w: CheckInput) -> bool:
    error = (await w.harness.call("godot_asset_manager", action="scene.delete", **SCENE))["error"]
    return {"code", "message", "details", "retryable", "suggestedFix"} <= set(error)


def code(text: str, expected: str, tool: str, **arguments: Any) -> None:
    async def check(w: CheckInput) -> bool:
        found = await w.harness.error_code(tool, **arguments)
        assert found == expected, (text, found)
        return True

    statement(text)(check)


MANAGER = "godot_scene_manager"
code("E_SCHEMA_VALIDATION: a missing argument.", "E_SCHEMA_VALIDATION", "add_node", **SCENE)
code("E_SCHEMA_VALIDATION: an unsupported action.", "E_SCHEMA_VALIDATION", MANAGER, action="fly")
code(
    "E_SCHEMA_VALIDATION: mutually exclusive parameters.", "E_SCHEMA_VALIDATION", "godot_code_manager",
    action="gdscript.eval_restricted", expression="1", code="1",
)  # fmt: skip
code("E_NOT_CONNECTED: an editor is required but not connected.", "E_NOT_CONNECTED", MANAGER, action="undo")
code("E_NOT_FOUND: a file is not found.", "E_NOT_FOUND", "read_script", scriptPath="absent.gd")
code("E_NOT_FOUND: a node is not found.", "E_NOT_FOUND", "remove_node", **SCENE, nodePath="Nobody")
code("E_NOT_FOUND: a section is not found.", "E_NOT_FOUND", "get_project_settings", section="absent")
code("E_PERMISSION_DENIED: ALLOW_DANGEROUS_OPS.", "E_PERMISSION_DENIED", "update_project_uids")
code("E_PERMISSION_DENIED: ALLOW_EXTERNAL_TOOLS.", "E_PERMISSION_DENIED", "godot_preflight", godotPath="/bin/sh")
code("E_UNSUPPORTED: not supported in the current mode.", "E_UNSUPPORTED", "run_project")


@statement("E_TIMEOUT: the operation timed out, and is retryable.")
async def _(w: CheckInput) -> bool:
    (w.harness.project / "long.gd").write_text("a" * 40 + "b")
    edit = {"action": "file.edit", "filePath": "long.gd", "find": "(a+)+$", "replace": "", "regex": True}
    error = (await w.harness.call("godot_code_manager", **edit))["error"]
    return (error["code"], error["retryable"]) == ("E_TIMEOUT", True)


@statement("E_INTERNAL: an unexpected failure, such as a file that cannot be written.")
async def _(w: CheckInput) -> bool:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800 * 1024, before[1]))
    try:
        return await w.harness.error_code("write_script", scriptPath="big.gd", content="#" * 900_000) == "E_INTERNAL"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@statement("action is required and an enum, and branches define which parameters each action accepts.")
def _(w: CheckInput) -> bool:
    managers = [tool["inputSchema"] for tool in w.tools.values() if "oneOf" in tool["inputSchema"]]
    return len(managers) == 10 and all(
        "action" in schema["required"]
        and schema["properties"]["action"]["enum"]
        == [each["properties"]["action"]["const"] for each in schema["oneOf"]]
        and all(each["additionalProperties"] is False for each in schema["oneOf"])
        for schema in managers
    )


statement("additionalProperties is false at the top of every schema.")(
    lambda w: all_tools(w, lambda t: t["inputSchema"]["additionalProperties"] is False)
)


def tree(check_input: CheckInput) -> str:
    return (check_input.harness.project / "main.tscn").read_text().replace("Array", "")


def audit(check_input: CheckInput) -> list[Json]:
    return [
        json.loads(line) for line in (check_input.harness.project / ".godot_mcp" / "audit.log").read_text().splitlines()
    ]


@pytest.fixture
async def harness(open_harness: Any) -> AsyncIterator[GodotHarness]:
    """A harness with an additional read-only tenant."""
    async with open_harness(settings={"tenants": {"default": {}, "quiet": {"read_only": True}}}) as running:
        yield running


async def test_every_statement_of_both_contracts_holds(harness: Any, era: str) -> None:
    project = {"projectPath": str(harness.project)}
    async with harness.gateway.client(era) as client, harness.gateway.client(era, path="/mcp/godot") as own:
        # The namespace endpoint lists the exact schemas under the original tool names.
        listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in await list_all_tools(own)]
        tools = {tool["name"]: tool for tool in listed}
        sdk_harness = SdkHarness(**{each.name: getattr(harness, each.name) for each in fields(harness)}, client=client)
        success = (await sdk_harness._post("godot.list_scenes", project))["result"]
        failure = (await sdk_harness._post("godot.get_node_tree", {**project, "scenePath": "no.tscn"}))["result"]
        check_input = CheckInput(sdk_harness, tools, success, failure)
        violated = [text for text, check in ROWS if not await check(check_input)]
    assert violated == []
