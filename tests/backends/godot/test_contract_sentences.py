"""A row for every sentence of the two contracts: what it says, and a check that it holds through the gateway.

Every call is the SDK client's, in either era. What a sentence demands of the engine is in test_engine.py; that
invocations are rate limited is in test_contract.py.
"""

import json
import re
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest

from tests.backends.godot.conftest import Studio

Json = dict[str, Any]
S = {"scenePath": "main.tscn"}
SEVEN = {
    "E_SCHEMA_VALIDATION", "E_NOT_CONNECTED", "E_NOT_FOUND", "E_PERMISSION_DENIED", "E_TIMEOUT", "E_UNSUPPORTED",
    "E_INTERNAL",
}  # fmt: skip


@dataclass(frozen=True)
class Caller(Studio):
    """The same studio, called by the SDK's client."""

    client: Any = None

    async def _post(self, name: str, arguments: Json) -> Json:
        return {"result": (await self.client.call_tool(name, arguments)).model_dump(by_alias=True, exclude_none=True)}


@dataclass
class World:
    """What the rows look at: the tools as listed by the exact names, one good and one bad answer."""

    studio: Any
    tools: dict[str, Json]
    good: Json
    bad: Json


Check = Callable[[World], Awaitable[bool]]
ROWS: list[tuple[str, Check]] = []


def row(sentence: str) -> Callable[[Callable[[World], Any]], Any]:
    def add(check: Callable[[World], Any]) -> Any:
        async def run(world: World) -> bool:
            found = check(world)
            return bool(await found) if hasattr(found, "__await__") else bool(found)

        ROWS.append((sentence, run))
        return check

    return add


def every(world: World, test: Callable[[Json], Any]) -> bool:
    return all(test(tool) for tool in world.tools.values())


# ---- tools, answers and read-only mode ----
row("A tool has a unique snake_case name.")(lambda w: every(w, lambda t: re.fullmatch(r"[a-z][a-z0-9_]*", t["name"])))
row("A tool has a description for people.")(lambda w: every(w, lambda t: len(t["description"]) > 10))
row("inputSchema is an object with properties and required.")(
    lambda w: every(w, lambda t: {"type", "properties", "required"} <= set(t["inputSchema"]))
)
row("A tool may have a title, an outputSchema and annotations: all of ours have.")(
    lambda w: every(w, lambda t: {"title", "outputSchema", "annotations"} <= set(t))
)
row("A success has text content and isError false.")(
    lambda w: w.good["content"][0]["type"] == "text" and w.good["isError"] is False
)
row("With an outputSchema a success has structuredContent.")(lambda w: w.good["structuredContent"]["ok"] is True)
row("An error has its message as text and isError true.")(
    lambda w: w.bad["isError"] is True and w.bad["content"][0]["text"] == w.bad["structuredContent"]["error"]["message"]
)


@row("MUST validate all tool inputs against inputSchema, before anything is done.")
async def _(w: World) -> bool:
    bad = {**S, "nodeType": 1, "nodeName": "A"}
    return await w.studio.code("add_node", **bad) == "E_SCHEMA_VALIDATION" and "A" not in tree(w)


@row("MUST implement access controls: a path outside the tenant's roots is denied.")
async def _(w: World) -> bool:
    return await w.studio.code("list_scenes", projectPath="/etc") == "E_PERMISSION_DENIED"


@row("MUST sanitise outputs: text that is no text comes back as JSON that any client reads.")
async def _(w: World) -> bool:
    (w.studio.project / "odd.tscn").write_bytes(b'[gd_scene format=3]\n\n[node name="\xff" type="Node"]\n')
    found = await w.studio.good("godot_asset_manager", action="scene.read", scenePath="odd.tscn")
    (w.studio.project / "odd.tscn").unlink()
    return "type=" in found["content"]


@row("SHOULD give clear messages with actionable hints.")
def _(w: World) -> bool:
    return len(w.bad["structuredContent"]["error"]["suggestedFix"]) > 10


@row("SHOULD use structured output schemas: a refusal fits them as well as a success.")
def _(w: World) -> bool:
    schema = w.tools["get_node_tree"]["outputSchema"]
    return all(set(schema["required"]) <= set(each["structuredContent"]) for each in (w.good, w.bad))


@row("Single responsibility: a tool does one operation, and one that dispatches says by its action which.")
def _(w: World) -> bool:
    return all("action" in tool["inputSchema"]["properties"] for name, tool in w.tools.items() if "manager" in name)


@row("Content is of the supported types.")
def _(w: World) -> bool:
    kinds = {block["type"] for each in (w.good, w.bad) for block in each["content"]}
    return kinds <= {"text", "image", "audio", "resource_link", "resource"}


@row("Idempotency: the same reading gives the same answer.")
async def _(w: World) -> bool:
    return await w.studio.good("get_node_tree", **S) == await w.studio.good("get_node_tree", **S)


@row("Graceful degradation: without an engine a scene is still edited, with a warning.")
async def _(w: World) -> bool:
    envelope = await w.studio.call("add_node", **S, nodeType="Node", nodeName="Plain")
    return envelope["execution"]["executor"] == "files" and "engine" in envelope["warnings"][0]


@row("Log all operations.")
async def _(w: World) -> bool:
    before = len(audit(w))
    await w.studio.call("list_scenes")
    return len(audit(w)) == before + 1


@row("Never expose internal details: no server path or exception text in an error.")
def _(w: World) -> bool:
    shown = json.dumps(w.bad["structuredContent"]["error"])
    return str(w.studio.files) not in shown and "Traceback" not in shown and "Errno" not in shown


@row("Errors have one format: the same keys, whoever refused.")
async def _(w: World) -> bool:
    by_gateway = await w.studio.call("add_node")
    by_backend = await w.studio.call("read_script", scriptPath="../x.gd")
    return set(by_gateway) == set(by_backend) and {"code", "message", "retryable", "suggestedFix"} <= set(
        by_gateway["error"]
    ) & set(by_backend["error"])


@row("Tools, resources, prompts and logging are declared as capabilities.")
async def _(w: World) -> bool:
    async with w.studio.gateway.client("legacy") as client:
        offered = client.server_capabilities
    assert offered.tools.list_changed
    return None not in (offered.resources, offered.prompts, offered.logging)


@row("All scene-modifying tools require projectPath and scenePath.")
def _(w: World) -> bool:
    names = ("add_node", "edit_node", "remove_node", "rename_node", "move_node", "duplicate_node", "instance_scene")
    needed = {"projectPath", "scenePath"}
    return all(needed <= set(w.tools[name]["inputSchema"]["required"]) for name in names)


@row("Names begin with a verb, or with what they manage.")
def _(w: World) -> bool:
    verbs = (
        "create add set get remove list edit rename move duplicate instance connect manage load attach detach export"
    )
    verbs += (
        " update read write delete import reimport batch run stop start launch take capture validate convert generate"
    )
    verbs += " save system godot meta"
    return {name.split("_")[0] for name in w.tools} <= set(verbs.split())


@row("projectPath is absolute, scenePath relative to it.")
async def _(w: World) -> bool:
    relative = await w.studio.code("list_scenes", projectPath="meadow")
    absolute = await w.studio.code("get_node_tree", scenePath="/main.tscn")
    return {relative, absolute} == {"E_PERMISSION_DENIED"}


@row("In read-only mode write tools are filtered from listings, and their calls are denied.")
async def _(w: World) -> bool:
    key = await w.studio.gateway.new_key("quiet")
    async with w.studio.gateway.as_(key).client() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("godot_write_script", {"projectPath": "/x", "scriptPath": "a", "content": ""})
    exports = {"godot_export_project", "godot_export_pack"}
    assert refused.structured_content["error"]["code"] == "E_PERMISSION_DENIED"
    return {"godot_get_node_tree", *exports} <= names and not {"godot_add_node", "godot_write_script"} & names


@row("Read-only tools are the queries and exports; the others modify files.")
def _(w: World) -> bool:
    hints = {name: tool["annotations"]["readOnlyHint"] for name, tool in w.tools.items()}
    return hints["get_node_tree"] and hints["list_scenes"] and not hints["add_node"] and not hints["write_script"]


# ---- the envelope ----
row("ok and summary are always present.")(
    lambda w: all(each["structuredContent"]["summary"] for each in (w.good, w.bad))
)
row("result defaults to details when ok.")(
    lambda w: w.good["structuredContent"]["result"] == w.good["structuredContent"]["details"]
)
row("result is null when not ok.")(lambda w: w.bad["structuredContent"]["result"] is None)
row("error is null when ok, and always present when not.")(
    lambda w: w.good["structuredContent"]["error"] is None and w.bad["structuredContent"]["error"]["code"] in SEVEN
)
row("meta has tool, action, correlationId and durationMs.")(
    lambda w: all(
        set(each["structuredContent"]["meta"]) == {"tool", "action", "correlationId", "durationMs"}
        for each in (w.good, w.bad)
    )
)
row("errors lists code and message.")(lambda w: w.bad["structuredContent"]["errors"][0].keys() == {"code", "message"})


@row("files have kind, pathAbs, resPath and bytes.")
async def _(w: World) -> bool:
    envelope = await w.studio.call("write_script", scriptPath="f.gd", content="extends Node\n", overwrite=True)
    return envelope["files"][0] == {
        "kind": "script", "pathAbs": str(w.studio.project / "f.gd"), "resPath": "res://f.gd", "bytes": 13,
    }  # fmt: skip


@row("Every call has a correlation id, in meta and in the project's audit.log.")
async def _(w: World) -> bool:
    envelope = await w.studio.call("list_scenes")
    return audit(w)[-1]["correlationId"] == envelope["meta"]["correlationId"]


@row("logs and warnings are lists of text, execution an object.")
async def _(w: World) -> bool:
    envelope = await w.studio.call("edit_node", **S, nodePath="Player", properties={"rotation": 1})
    texts = [*envelope.get("logs", []), *envelope["warnings"]]
    return all(isinstance(text, str) for text in texts) and isinstance(envelope["execution"], dict)


@row("An error has code, message, and what helps: details, retryable, suggestedFix.")
async def _(w: World) -> bool:
    error = (await w.studio.call("godot_asset_manager", action="scene.delete", **S))["error"]
    return {"code", "message", "details", "retryable", "suggestedFix"} <= set(error)


def code(sentence: str, expected: str, tool: str, **arguments: Any) -> None:
    async def check(w: World) -> bool:
        found = await w.studio.code(tool, **arguments)
        assert found == expected, (sentence, found)
        return True

    row(sentence)(check)


MANAGER = "godot_scene_manager"
code("E_SCHEMA_VALIDATION: a missing argument.", "E_SCHEMA_VALIDATION", "add_node", **S)
code("E_SCHEMA_VALIDATION: an unsupported action.", "E_SCHEMA_VALIDATION", MANAGER, action="fly")
code(
    "E_SCHEMA_VALIDATION: mutually exclusive parameters.", "E_SCHEMA_VALIDATION", "godot_code_manager",
    action="gdscript.eval_restricted", expression="1", code="1",
)  # fmt: skip
code("E_NOT_CONNECTED: an editor is required but not connected.", "E_NOT_CONNECTED", MANAGER, action="undo")
code("E_NOT_FOUND: a file is not found.", "E_NOT_FOUND", "read_script", scriptPath="absent.gd")
code("E_NOT_FOUND: a node is not found.", "E_NOT_FOUND", "remove_node", **S, nodePath="Nobody")
code("E_NOT_FOUND: a section is not found.", "E_NOT_FOUND", "get_project_settings", section="absent")
code("E_PERMISSION_DENIED: ALLOW_DANGEROUS_OPS.", "E_PERMISSION_DENIED", "update_project_uids")
code("E_PERMISSION_DENIED: ALLOW_EXTERNAL_TOOLS.", "E_PERMISSION_DENIED", "godot_preflight", godotPath="/bin/sh")
code("E_UNSUPPORTED: not supported in the current mode.", "E_UNSUPPORTED", "take_screenshot")


@row("E_TIMEOUT: the operation timed out, and may be tried again.")
async def _(w: World) -> bool:
    (w.studio.project / "long.gd").write_text("a" * 40 + "b")
    edit = {"action": "file.edit", "filePath": "long.gd", "find": "(a+)+$", "replace": "", "regex": True}
    error = (await w.studio.call("godot_code_manager", **edit))["error"]
    return (error["code"], error["retryable"]) == ("E_TIMEOUT", True)


@row("E_INTERNAL: an unexpected failure, such as a file that cannot be written.")
async def _(w: World) -> bool:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, before[1]))
    try:
        return await w.studio.code("write_script", scriptPath="big.gd", content="#" * 300_000) == "E_INTERNAL"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@row("action is required and an enum, and branches say which parameters go with it.")
def _(w: World) -> bool:
    managers = [tool["inputSchema"] for tool in w.tools.values() if "oneOf" in tool["inputSchema"]]
    return len(managers) == 8 and all(
        "action" in schema["required"]
        and schema["properties"]["action"]["enum"]
        == [each["properties"]["action"]["const"] for each in schema["oneOf"]]
        and all(each["additionalProperties"] is False for each in schema["oneOf"])
        for schema in managers
    )


row("additionalProperties is false at the top of every schema.")(
    lambda w: every(w, lambda t: t["inputSchema"]["additionalProperties"] is False)
)


def tree(world: World) -> str:
    return (world.studio.project / "main.tscn").read_text().replace("Array", "")


def audit(world: World) -> list[Json]:
    return [json.loads(line) for line in (world.studio.project / ".godot_mcp" / "audit.log").read_text().splitlines()]


@pytest.fixture
async def studio(studio_with: Any) -> AsyncIterator[Studio]:
    """One with a tenant beside it that may only read."""
    async with studio_with(settings={"tenants": {"default": {}, "quiet": {"read_only": True}}}) as running:
        yield running


async def test_every_sentence_of_both_contracts_holds(studio: Any, era: str) -> None:
    project = {"projectPath": str(studio.project)}
    async with studio.gateway.client(era) as client, studio.gateway.client(era, path="/mcp/godot") as own:
        # The namespace's own endpoint lists the exact schemas, under the tools' own names.
        listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await own.list_tools()).tools]
        tools = {tool["name"]: tool for tool in listed}
        caller = Caller(*(getattr(studio, each.name) for each in fields(studio)), client)
        good = (await caller._post("godot.list_scenes", project))["result"]
        bad = (await caller._post("godot.get_node_tree", {**project, "scenePath": "no.tscn"}))["result"]
        world = World(caller, tools, good, bad)
        broken = [sentence for sentence, check in ROWS if not await check(world)]
    assert broken == []
