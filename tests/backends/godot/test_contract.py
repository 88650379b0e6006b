"""The two contracts, sentence by sentence, through the gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

SCENE: dict[str, Any] = {"scenePath": "main.tscn"}


async def test_the_sdk_client_builds_a_scene_in_either_era(studio: Any, era: str) -> None:
    project = str(studio.project)
    async with studio.gateway.client(era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"godot_add_node", "godot_scene_manager", "godot_meta_tool_manager"} <= set(tools)
        arguments = {"projectPath": project, "scenePath": "main.tscn", "nodeType": "Node2D", "nodeName": "Tree"}
        result = await client.call_tool("godot_add_node", arguments)
        assert not result.is_error
        assert result.structured_content["result"]["nodePath"] == "Tree"
        result = await client.call_tool("godot_add_node", arguments)
        assert result.is_error
        assert result.structured_content["error"]["code"] == "E_PERMISSION_DENIED"
    assert 'name="Tree"' in (studio.project / "main.tscn").read_text()


async def test_a_good_answer_is_the_envelope_as_structure_and_as_text(studio: Any) -> None:
    answer = await studio.gateway.call("godot_list_scenes", {"projectPath": str(studio.project)})
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


async def test_a_failure_has_no_result_and_always_an_error_that_helps(studio: Any) -> None:
    envelope = await studio.call("godot_asset_manager", action="scene.read", scenePath="absent.tscn")
    assert envelope["result"] is None
    assert envelope["meta"]["action"] == "scene.read"
    error = envelope["error"]
    assert error["code"] == "E_NOT_FOUND"
    assert error["message"] == envelope["summary"]
    assert error["retryable"] is False
    assert error["suggestedFix"]
    assert str(studio.files) not in json.dumps(error)


async def test_the_correlation_id_of_the_call_is_in_meta(studio: Any) -> None:
    answer = await studio.gateway.call(
        "godot_list_scenes", {"projectPath": str(studio.project)}, {"correlationId": "my-own-id"}
    )
    assert answer["result"]["structuredContent"]["meta"]["correlationId"] == "my-own-id"


_SCHEMA, _DENIED = "E_SCHEMA_VALIDATION", "E_PERMISSION_DENIED"
REFUSALS = [
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
    ("take_screenshot", {}, "E_UNSUPPORTED", False),
    ("start_debug_stream", {"port": 6551, "projectPath": None}, "E_UNSUPPORTED", False),
    ("godot_headless_op", {"operation": "fly", "params": {}}, "E_UNSUPPORTED", False),
]  # fmt: skip


async def test_each_refusal_has_the_code_and_retryability_of_its_meaning(studio: Any) -> None:
    before = (studio.project / "main.tscn").read_bytes()
    for tool, arguments, code, retryable in REFUSALS:
        envelope = await studio.call(tool, **arguments)
        assert not envelope["ok"], (tool, arguments)
        error = envelope["error"]
        assert (error["code"], error["retryable"]) == (code, retryable), (tool, arguments, error)
        assert error["suggestedFix"]
    assert (studio.project / "main.tscn").read_bytes() == before


async def test_threat_30_path_traversal_in_file_tools_is_denied_for_every_path_argument(studio: Any) -> None:
    (studio.root / "secret.gd").write_text("secret")
    for tool, name, more in (
        ("read_script", "scriptPath", {}),
        ("write_script", "scriptPath", {"content": "x"}),
        ("create_scene", "scenePath", {}),
        ("list_scenes", "directory", {}),
        ("get_uid", "filePath", {}),
        ("manage_autoloads", "path", {"action": "add", "name": "A"}),
        ("import_asset", "destinationPath", {"sourcePath": "a.png"}),
        ("add_node", "scenePath", {"nodeType": "Node", "nodeName": "A"}),
    ):
        for hostile in (
            "../secret.gd",
            "/etc/passwd",
            "a/../../secret.gd",
            "\\\\host\\x",
            "user://x",
            "x\0.gd",
            "%2e%2e/secret.gd",
        ):
            assert await studio.code(tool, **{name: hostile, **more}) == "E_PERMISSION_DENIED", (tool, hostile)
    value = {"$resource": "../secret.gd"}
    code = await studio.code("edit_node", **SCENE, nodePath="Player", properties={"texture": value})
    assert code == "E_PERMISSION_DENIED"
    assert sorted(path.name for path in studio.root.iterdir()) == ["meadow", "secret.gd"]


async def test_two_tenants_with_the_same_project_name_never_meet(studio_with: Any) -> None:
    tenants = {"default": {}, "acme": {}}
    async with studio_with(settings={"tenants": tenants}) as ours:
        theirs = await ours.of("acme")
        theirs.make_project()
        await ours.good("write_script", scriptPath="ours.gd", content="extends Node\n")
        await theirs.good("write_script", scriptPath="theirs.gd", content="extends Node\n")
        assert [each["name"] for each in (await ours.good("list_scripts"))["scripts"]] == ["ours.gd"]
        assert [each["name"] for each in (await theirs.good("list_scripts"))["scripts"]] == ["theirs.gd"]
        assert await theirs.code("list_scripts", projectPath=str(ours.project)) == "E_PERMISSION_DENIED"
        assert await theirs.code("list_scripts", projectPath=str(ours.root / "absent")) == "E_PERMISSION_DENIED"
        (theirs.root / "sneak").symlink_to(ours.project)
        assert await theirs.code("list_scripts", projectPath=str(theirs.root / "sneak")) == "E_PERMISSION_DENIED"
        (theirs.project / "sneak").symlink_to(ours.project)
        assert await theirs.code("read_script", scriptPath="sneak/ours.gd") == "E_PERMISSION_DENIED"
        found = await theirs.good("list_projects", projectPath=None, directory=str(theirs.root), recursive=True)
        assert [Path(each["path"]).name for each in found["projects"]] == ["meadow"]


async def test_in_read_only_mode_writers_are_not_listed_and_their_calls_are_denied(studio_with: Any) -> None:
    async with studio_with(settings={"tenants": {"default": {"read_only": True}}}) as studio:
        async with studio.gateway.client() as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"godot_get_node_tree", "godot_export_project", "godot_meta_tool_manager"} <= names
        assert not {"godot_add_node", "godot_write_script", "godot_scene_manager"} & names
        assert (await studio.good("get_node_tree", **SCENE))["nodeCount"] == 3
        envelope = await studio.call("write_script", scriptPath="a.gd", content="x")
        assert envelope["error"]["code"] == "E_PERMISSION_DENIED"
        assert envelope["summary"] == "This tenant is read-only."
        assert not (studio.project / "a.gd").exists()


async def test_dangerous_operations_work_once_they_are_allowed(studio_with: Any) -> None:
    async with studio_with(allow_dangerous_ops=True) as studio:
        renamed = await studio.good("godot_scene_manager", action="rename", **SCENE, nodePath="Player", newName="Hero")
        assert renamed["nodePath"] == "Hero"
        await studio.good("godot_headless_op", operation="remove_node", params={**SCENE, "node_path": "Hero"})
        await studio.good("godot_asset_manager", action="scene.rename", **SCENE, newScenePath="first.tscn")
        await studio.good("godot_asset_manager", action="scene.delete", scenePath="first.tscn")
        assert not (studio.project / "first.tscn").exists()


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_list_tells_what_is_switched_off(studio_with: Any, is_open: bool) -> None:
    async with studio_with(allow_dangerous_ops=is_open) as studio, studio.gateway.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    gates = {name: tool.meta["godot:gate"] for name, tool in tools.items() if "godot:gate" in tool.meta}
    assert gates.keys() == {
        *("godot_update_project_uids", "godot_convert_3to4"),
        *("godot_scene_manager", "godot_asset_manager", "godot_project_config_manager"),
    }
    assert gates["godot_scene_manager"]["actions"] == ["rename", "move", "remove"]
    for name, gate in gates.items():
        assert gate["open"] is is_open
        assert ("switched off" in tools[name].description) is not is_open


async def test_tools_that_do_one_thing_by_their_own_name_are_not_behind_the_gate(studio: Any) -> None:
    """By the contract the gate is for operations by name, and for what rewrites a project whole."""
    await studio.good("rename_node", **SCENE, nodePath="Player", newName="Hero")
    await studio.good("move_node", **SCENE, nodePath="Hero/Sword", newParentPath=".")
    await studio.good("remove_node", **SCENE, nodePath="Sword")
    await studio.good("set_project_setting", key="application/config/description", value="new")
    await studio.good("write_script", scriptPath="a.gd", content="extends Node\n")
    await studio.good("delete_script", scriptPath="a.gd")
    async with studio.gateway.client() as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert all(tools[f"godot_{name}"].destructive_hint for name in ("remove_node", "delete_script"))


async def test_an_operator_may_have_them_approved_call_by_call(start: Any, tmp_path: Path) -> None:
    entry = {"module": "backends.godot", "options": {"godot_path": ""}, "effects": {"delete_script": 3}}
    async with start(backends={"godot": entry}) as gateway:
        answer = await gateway.call("godot_delete_script", {"projectPath": str(tmp_path), "scriptPath": "a.gd"})
        assert answer["result"]["structuredContent"]["error"]["kind"] == "approval_required"


async def test_invocations_are_rate_limited_and_may_be_tried_again(studio_with: Any) -> None:
    async with studio_with(settings={"limits": {"calls": "2/minute"}}) as studio:
        assert (await studio.call("list_scenes"))["ok"]
        assert (await studio.call("list_scenes"))["ok"]
        error = (await studio.call("list_scenes"))["error"]
        assert (error["kind"], error["retryable"]) == ("rate_limited", True)
        assert error["retry_after"] > 0


async def test_writers_of_one_scene_wait_for_each_other(studio: Any) -> None:
    added = await asyncio.gather(
        *(studio.call("add_node", **SCENE, nodeType="Node", nodeName=f"N{number}") for number in range(20))
    )
    assert all(each["ok"] for each in added)
    tree = await studio.good("get_node_tree", **SCENE)
    assert tree["nodeCount"] == 23


async def test_a_batch_runs_each_tool_through_the_gateway_and_stops_at_the_first_failure(studio: Any) -> None:
    operations = [
        {"tool": "create_scene", "args": {"scenePath": "a.tscn"}, "id": "first"},
        {"tool": "read_script", "args": {"scriptPath": "../x.gd"}},
        {"tool": "create_scene", "args": {"scenePath": "b.tscn"}},
    ]
    result = await studio.good("batch_operations", operations=operations)
    assert (result["totalOperations"], result["successCount"], result["failureCount"]) == (3, 1, 1)
    assert result["stoppedEarly"] is True
    assert result["results"][0]["id"] == "first"
    assert result["results"][1]["error"]["code"] == "E_PERMISSION_DENIED"
    result = await studio.good("batch_operations", operations=operations[1:], stopOnError=False)
    assert [each["success"] for each in result["results"]] == [False, True]
    nested = [{"tool": "batch_operations", "args": {"operations": operations}}]
    assert await studio.code("batch_operations", operations=nested) == "E_SCHEMA_VALIDATION"


async def test_progress_of_a_batch_reaches_the_client_that_asked_for_it(studio: Any, era: str) -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    operations = [{"tool": "list_scenes", "args": {}}] * 3
    arguments = {"projectPath": str(studio.project), "operations": operations}
    async with studio.gateway.client(era) as client:
        result = await client.call_tool("godot_batch_operations", arguments, progress_callback=on_progress)
    assert not result.is_error
    assert heard == [1, 2, 3]
