"""Behaviour that the two Godot contracts require, tested through the gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_results import list_all_tools

SCENE: dict[str, Any] = {"scenePath": "main.tscn"}


async def test_the_sdk_client_builds_a_scene_in_either_era(harness: Any, era: str) -> None:
    project = str(harness.project)
    async with harness.gateway.client(era) as client:
        tools = {tool.name: tool for tool in await list_all_tools(client)}
        assert {"godot_add_node", "godot_scene_manager", "godot_meta_tool_manager"} <= set(tools)
        arguments = {"projectPath": project, "scenePath": "main.tscn", "nodeType": "Node2D", "nodeName": "Tree"}
        result = await client.call_tool("godot_add_node", arguments)
        assert not result.is_error
        assert result.structured_content["result"]["nodePath"] == "Tree"
        result = await client.call_tool("godot_add_node", arguments)
        assert result.is_error
        assert result.structured_content["error"]["code"] == "E_SCHEMA_VALIDATION"
    assert 'name="Tree"' in (harness.project / "main.tscn").read_text()


async def test_success_returns_the_envelope_as_structured_content_and_as_text(harness: Any) -> None:
    answer = await harness.gateway.call("godot_list_scenes", {"projectPath": str(harness.project)})
    result = answer["result"]
    envelope = result["structuredContent"]
    assert result["isError"] is False
    assert json.loads(result["content"][0]["text"]) == envelope
    assert envelope["ok"] is True
    assert envelope["summary"]
    assert envelope["result"] == envelope["details"]
    assert envelope["error"] is None
    assert envelope["meta"]["tool"] == "list_scenes"
    assert envelope["meta"]["action"] is None
    assert envelope["meta"]["durationMs"] >= 0


async def test_failure_has_no_result_and_an_error_with_a_suggested_fix(harness: Any) -> None:
    envelope = await harness.call("godot_asset_manager", action="scene.read", scenePath="absent.tscn")
    assert envelope["result"] is None
    assert envelope["meta"]["action"] == "scene.read"
    error = envelope["error"]
    assert error["code"] == "E_NOT_FOUND"
    assert error["message"] == envelope["summary"]
    assert error["retryable"] is False
    assert error["suggestedFix"]
    assert str(harness.files) not in json.dumps(error)


async def test_the_correlation_id_of_the_call_is_in_meta(harness: Any) -> None:
    answer = await harness.gateway.call(
        "godot_list_scenes", {"projectPath": str(harness.project)}, {"correlationId": "my-own-id"}
    )
    assert answer["result"]["structuredContent"]["meta"]["correlationId"] == "my-own-id"


_SCHEMA, _DENIED = "E_SCHEMA_VALIDATION", "E_PERMISSION_DENIED"
ERRORS = [
    ("add_node", {"scenePath": "main.tscn"}, "E_SCHEMA_VALIDATION", False),
    ("add_node", {**SCENE, "nodeType": "Node", "nodeName": "A", "extra": 1}, "E_SCHEMA_VALIDATION", False),
    ("godot_scene_manager", {"action": "fly"}, "E_SCHEMA_VALIDATION", False),
    ("godot_scene_manager", {"action": "undo", "nodePath": "."}, "E_SCHEMA_VALIDATION", False),
    ("godot_code_manager", {"action": "gdscript.eval_restricted", "expression": "", "code": ""}, _SCHEMA, False),
    ("godot_scene_manager", {"action": "undo"}, "E_NOT_CONNECTED", True),
    ("godot_inspector_manager", {"action": "get_selection", "projectPath": None}, "E_NOT_CONNECTED", True),
    ("capture_editor_viewport", {}, "E_NOT_CONNECTED", True),
    ("godot_rpc", {"request_json": {"method": "ping"}, "projectPath": None}, "E_NOT_CONNECTED", True),
    ("get_node_tree", {"scenePath": "absent.tscn"}, "E_NOT_FOUND", False),
    ("edit_node", {**SCENE, "nodePath": "Nobody", "properties": {"x": 1}}, "E_NOT_FOUND", False),
    ("get_project_settings", {"section": "absent"}, "E_NOT_FOUND", False),
    ("read_script", {"scriptPath": "../x.gd"}, "E_PERMISSION_DENIED", False),
    ("read_script", {"scriptPath": "user://x.gd"}, "E_PERMISSION_DENIED", False),
    ("get_node_tree", {**SCENE, "projectPath": "/etc"}, "E_PERMISSION_DENIED", False),
    ("godot_headless_op", {"operation": "remove_node", "params": {}}, "E_PERMISSION_DENIED", False),
    ("godot_asset_manager", {"action": "scene.delete", **SCENE}, "E_PERMISSION_DENIED", False),
    ("godot_project_config_manager", {"action": "project_setting.set", "key": "a/b", "value": 1}, _DENIED, False),
    ("godot_scene_manager", {"action": "rename", **SCENE, "nodePath": "Player", "newName": "H"}, _DENIED, False),
    ("update_project_uids", {}, "E_PERMISSION_DENIED", False),
    ("godot_preflight", {"godotPath": "/bin/sh"}, "E_PERMISSION_DENIED", False),
    ("get_godot_version", {"projectPath": None}, "E_UNSUPPORTED", False),
    ("run_project", {}, "E_UNSUPPORTED", False),
    ("take_screenshot", {}, "E_SCHEMA_VALIDATION", False),
    ("start_debug_stream", {"port": 6551, "projectPath": None}, "E_UNSUPPORTED", False),
    ("godot_headless_op", {"operation": "fly", "params": {}}, "E_UNSUPPORTED", False),
]  # fmt: skip


async def test_each_error_has_the_expected_code_and_retryability(harness: Any) -> None:
    before = (harness.project / "main.tscn").read_bytes()
    for tool, arguments, code, retryable in ERRORS:
        envelope = await harness.call(tool, **arguments)
        assert not envelope["ok"], (tool, arguments)
        error = envelope["error"]
        assert (error["code"], error["retryable"]) == (code, retryable), (tool, arguments, error)
        assert error["suggestedFix"]
    assert (harness.project / "main.tscn").read_bytes() == before


async def test_threat_30_path_traversal_in_file_tools_is_denied_for_every_path_argument(harness: Any) -> None:
    (harness.root / "secret.gd").write_text("secret")
    for tool, name, extra in (
        ("read_script", "scriptPath", {}),
        ("write_script", "scriptPath", {"content": "x"}),
        ("create_scene", "scenePath", {}),
        ("list_scenes", "directory", {}),
        ("get_uid", "filePath", {}),
        ("manage_autoloads", "path", {"action": "add", "name": "A"}),
        ("import_asset", "destinationPath", {"sourcePath": "a.png"}),
        ("add_node", "scenePath", {"nodeType": "Node", "nodeName": "A"}),
    ):
        for path in (
            "../secret.gd",
            "/etc/passwd",
            "a/../../secret.gd",
            "\\\\host\\x",
            "user://x",
            "x\0.gd",
            "%2e%2e/secret.gd",
        ):
            assert await harness.error_code(tool, **{name: path, **extra}) == "E_PERMISSION_DENIED", (tool, path)
    value = {"$resource": "../secret.gd"}
    code = await harness.error_code("edit_node", **SCENE, nodePath="Player", properties={"texture": value})
    assert code == "E_PERMISSION_DENIED"
    assert sorted(path.name for path in harness.root.iterdir()) == ["meadow", "secret.gd"]


async def test_tenants_with_the_same_project_name_are_isolated(open_harness: Any) -> None:
    tenants = {"default": {}, "acme": {}}
    async with open_harness(settings={"tenants": tenants}) as ours:
        theirs = await ours.for_tenant("acme")
        theirs.make_project()
        await ours.call_ok("write_script", scriptPath="ours.gd", content="extends Node\n")
        await theirs.call_ok("write_script", scriptPath="theirs.gd", content="extends Node\n")
        assert [each["name"] for each in (await ours.call_ok("list_scripts"))["scripts"]] == ["ours.gd"]
        assert [each["name"] for each in (await theirs.call_ok("list_scripts"))["scripts"]] == ["theirs.gd"]
        assert await theirs.error_code("list_scripts", projectPath=str(ours.project)) == "E_PERMISSION_DENIED"
        assert await theirs.error_code("list_scripts", projectPath=str(ours.root / "absent")) == "E_PERMISSION_DENIED"
        (theirs.root / "sneak").symlink_to(ours.project)
        assert await theirs.error_code("list_scripts", projectPath=str(theirs.root / "sneak")) == "E_PERMISSION_DENIED"
        (theirs.project / "sneak").symlink_to(ours.project)
        assert await theirs.error_code("read_script", scriptPath="sneak/ours.gd") == "E_PERMISSION_DENIED"
        found = await theirs.call_ok("list_projects", projectPath=None, directory=str(theirs.root), recursive=True)
        assert [Path(each["path"]).name for each in found["projects"]] == ["meadow"]


async def test_read_only_mode_hides_write_tools_and_denies_their_calls(open_harness: Any) -> None:
    async with open_harness(settings={"tenants": {"default": {"read_only": True}}}) as harness:
        async with harness.gateway.client() as client:
            names = {tool.name for tool in await list_all_tools(client)}
        assert {"godot_get_node_tree", "godot_export_project", "godot_meta_tool_manager"} <= names
        assert not {"godot_add_node", "godot_write_script", "godot_scene_manager"} & names
        assert (await harness.call_ok("get_node_tree", **SCENE))["nodeCount"] == 3
        envelope = await harness.call("write_script", scriptPath="a.gd", content="x")
        assert envelope["error"]["code"] == "E_PERMISSION_DENIED"
        assert envelope["summary"] == "This tenant is read-only."
        assert not (harness.project / "a.gd").exists()


async def test_dangerous_operations_work_once_they_are_allowed(open_harness: Any) -> None:
    async with open_harness(allow_dangerous_ops=True) as harness:
        renamed = await harness.call_ok(
            "godot_scene_manager", action="rename", **SCENE, nodePath="Player", newName="Hero"
        )
        assert renamed["nodePath"] == "Hero"
        await harness.call_ok("godot_headless_op", operation="remove_node", params={**SCENE, "node_path": "Hero"})
        await harness.call_ok("godot_asset_manager", action="scene.rename", **SCENE, newScenePath="first.tscn")
        await harness.call_ok("godot_asset_manager", action="scene.delete", scenePath="first.tscn")
        assert not (harness.project / "first.tscn").exists()


@pytest.mark.parametrize("gate_open", [False, True])
async def test_tool_list_states_which_operations_are_disabled(open_harness: Any, gate_open: bool) -> None:
    async with open_harness(allow_dangerous_ops=gate_open) as harness, harness.gateway.client() as client:
        tools = {tool.name: tool for tool in await list_all_tools(client)}
    gates = {name: tool.meta["godot:gate"] for name, tool in tools.items() if "godot:gate" in tool.meta}
    assert gates.keys() == {
        *("godot_update_project_uids", "godot_convert_3to4"),
        *("godot_scene_manager", "godot_asset_manager", "godot_project_config_manager", "godot_game_manager"),
    }
    assert gates["godot_scene_manager"]["actions"] == ["rename", "move", "remove"]
    for name, gate in gates.items():
        assert gate["open"] is gate_open
        assert ("disabled here" in tools[name].description) is not gate_open


async def test_single_purpose_tools_do_not_need_the_dangerous_operations_gate(harness: Any) -> None:
    """The contract requires the gate only for operations by name and for tools that rewrite a whole project."""
    await harness.call_ok("rename_node", **SCENE, nodePath="Player", newName="Hero")
    await harness.call_ok("move_node", **SCENE, nodePath="Hero/Sword", newParentPath=".")
    await harness.call_ok("remove_node", **SCENE, nodePath="Sword")
    await harness.call_ok("set_project_setting", key="application/config/description", value="new")
    await harness.call_ok("write_script", scriptPath="a.gd", content="extends Node\n")
    await harness.call_ok("delete_script", scriptPath="a.gd")
    async with harness.gateway.client() as client:
        tools = {tool.name: tool.annotations for tool in await list_all_tools(client)}
    assert all(tools[f"godot_{name}"].destructive_hint for name in ("remove_node", "delete_script"))


async def test_operator_can_require_approval_for_a_tool(start: Any, tmp_path: Path) -> None:
    entry = {"module": "backends.godot", "options": {"godot_path": ""}, "effects": {"delete_script": 3}}
    async with start(backends={"godot": entry}) as gateway:
        answer = await gateway.call("godot_delete_script", {"projectPath": str(tmp_path), "scriptPath": "a.gd"})
        assert answer["result"]["structuredContent"]["error"]["kind"] == "approval_required"


async def test_calls_are_rate_limited_with_a_retryable_error(open_harness: Any) -> None:
    async with open_harness(settings={"limits": {"calls": "2/minute"}}) as harness:
        assert (await harness.call("list_scenes"))["ok"]
        assert (await harness.call("list_scenes"))["ok"]
        error = (await harness.call("list_scenes"))["error"]
        assert (error["kind"], error["retryable"]) == ("rate_limited", True)
        assert error["retry_after"] > 0


async def test_concurrent_writes_to_one_scene_are_serialized(harness: Any) -> None:
    added = await asyncio.gather(
        *(harness.call("add_node", **SCENE, nodeType="Node", nodeName=f"N{number}") for number in range(20))
    )
    assert all(each["ok"] for each in added)
    tree = await harness.call_ok("get_node_tree", **SCENE)
    assert tree["nodeCount"] == 23


async def test_batch_calls_each_tool_through_the_gateway_and_stops_at_the_first_failure(harness: Any) -> None:
    operations = [
        {"tool": "create_scene", "args": {"scenePath": "a.tscn"}, "id": "first"},
        {"tool": "read_script", "args": {"scriptPath": "../x.gd"}},
        {"tool": "create_scene", "args": {"scenePath": "b.tscn"}},
    ]
    result = (await harness.call("batch_operations", operations=operations))["details"]
    assert (result["totalOperations"], result["successCount"], result["failureCount"]) == (3, 1, 1)
    assert result["stoppedEarly"] is True
    assert result["results"][0]["id"] == "first"
    assert result["results"][1]["error"]["code"] == "E_PERMISSION_DENIED"
    result = (await harness.call("batch_operations", operations=operations[1:], stopOnError=False))["details"]
    assert [each["success"] for each in result["results"]] == [False, True]
    nested = [{"tool": "batch_operations", "args": {"operations": operations}}]
    assert await harness.error_code("batch_operations", operations=nested) == "E_SCHEMA_VALIDATION"


async def test_batch_reports_progress_to_the_client(harness: Any, era: str) -> None:
    progress_values: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progress_values.append(progress)

    operations = [{"tool": "list_scenes", "args": {}}] * 3
    arguments = {"projectPath": str(harness.project), "operations": operations}
    async with harness.gateway.client(era) as client:
        result = await client.call_tool("godot_batch_operations", arguments, progress_callback=on_progress)
    assert not result.is_error
    assert progress_values == [1, 2, 3]
