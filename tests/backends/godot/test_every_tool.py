"""Calls every tool and every action at least once, through the gateway and with a real engine."""

import base64
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from backends.godot.tool_table import TOOLS
from tests.backends.godot.authoring_rows import BUILDER_ROWS, GAME_ROWS
from tests.backends.godot.authoring_rows import ROWS as AUTHORING_ROWS

Json = dict[str, Any]
SCENE = {"scenePath": "main.tscn"}
NONE = {"projectPath": None}
DENIED, OFFLINE, UNSUPPORTED, MISSING = "E_PERMISSION_DENIED", "E_NOT_CONNECTED", "E_UNSUPPORTED", "E_NOT_FOUND"


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * 6) * 2)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


MESHES = """[gd_scene format=3]

[sub_resource type="BoxMesh" id="BoxMesh_1"]

[node name="Meshes" type="Node3D"]

[node name="Box" type="MeshInstance3D" parent="."]
mesh = SubResource("BoxMesh_1")
"""
PRESETS = """[preset.0]

name="Linux"
platform="Linux"
runnable=true
export_filter="all_resources"
include_filter=""
exclude_filter=""
export_path=""

[preset.0.options]

binary_format/embed_pck=false
"""

# (tool, arguments, None when it must succeed, else the code it must answer). In the order they build on each other.
ROWS: list[tuple[str, Json, str | None]] = [
    ("get_godot_version", NONE, None),
    ("system_health", NONE, None),
    ("godot_preflight", {}, None),
    ("list_projects", {**NONE, "directory": "{root}", "recursive": True}, None),
    ("create_project", {"projectPath": "{root}/new", "name": "New"}, None),
    ("get_project_info", {}, None),
    ("create_scene", {"scenePath": "scenes/level.tscn", "rootNodeType": "Node3D"}, None),
    ("list_scenes", {}, None),
    ("get_node_tree", {**SCENE, "maxDepth": 1}, None),
    (
        "add_node",
        {**SCENE, "nodeType": "Label", "nodeName": "Title", "properties": {"text": "Hi", "position": [3, 4]}},
        None,
    ),
    (
        "edit_node",
        {**SCENE, "nodePath": "Title", "properties": {"modulate": "red", "custom_minimum_size": {"x": 5, "y": 6}}},
        None,
    ),
    ("duplicate_node", {**SCENE, "nodePath": "Player", "newName": "Twin"}, None),
    ("rename_node", {**SCENE, "nodePath": "Twin", "newName": "Other"}, None),
    ("move_node", {**SCENE, "nodePath": "Title", "newParentPath": "Other"}, None),
    ("instance_scene", {**SCENE, "instancePath": "scenes/level.tscn", "instanceName": "Level"}, None),
    (
        "connect_signal",
        {**SCENE, "fromNodePath": "Player", "signal": "draw", "toNodePath": ".", "method": "hide"},
        None,
    ),
    ("manage_groups", {**SCENE, "nodePath": "Player", "action": "add", "groups": ["a"]}, None),
    ("write_script", {"scriptPath": "player.gd", "content": "extends Sprite2D\n@export var speed := 3\n"}, None),
    ("attach_script", {**SCENE, "nodePath": "Player", "scriptPath": "player.gd"}, None),
    ("edit_node", {**SCENE, "nodePath": "Player", "properties": {"speed": 9}}, None),
    ("read_script", {"scriptPath": "player.gd"}, None),
    ("list_scripts", {}, None),
    ("get_script_errors", {"scriptPath": "player.gd"}, None),
    ("detach_script", {**SCENE, "nodePath": "Other"}, MISSING),
    ("attach_script", {**SCENE, "nodePath": "Other", "scriptPath": "player.gd"}, None),
    ("detach_script", {**SCENE, "nodePath": "Other"}, None),
    ("delete_script", {"scriptPath": "player.gd"}, DENIED),
    ("remove_node", {**SCENE, "nodePath": "Other"}, None),
    ("save_scene", {**SCENE, "newPath": "copy.tscn"}, None),
    ("save_scene", SCENE, None),
    ("get_uid", {"filePath": "scenes/level.tscn"}, None),
    ("update_project_uids", {}, None),
    (
        "create_resource",
        {"resourcePath": "m.tres", "resourceType": "Gradient", "properties": {"offsets": [0, 1]}},
        None,
    ),
    ("list_resources", {}, None),
    ("import_asset", {"sourcePath": "raw.png", "destinationPath": "art/icon.png"}, None),
    ("list_assets", {"category": "texture"}, None),
    ("export_mesh_library", {"scenePath": "meshes.tscn", "outputPath": "lib.tres"}, None),
    ("get_project_settings", {"section": "application"}, None),
    ("set_project_setting", {"key": "application/run/main_scene", "value": "res://main.tscn"}, None),
    ("manage_autoloads", {"action": "list"}, None),
    ("manage_input_actions", {"action": "add", "name": "jump", "events": [{"type": "key", "keycode": "SPACE"}]}, None),
    ("list_export_presets", {}, None),
    ("run_project", {"scene": "main.tscn"}, None),
    ("start_debug_stream", NONE, None),
    ("get_debug_stream_status", NONE, None),
    ("get_debug_output", NONE, None),
    ("stop_debug_stream", NONE, None),
    ("stop_project", NONE, None),
    ("validate_project", {"checkScripts": False}, None),
    ("capture_editor_viewport", {}, OFFLINE),
    ("batch_operations", {"operations": [{"tool": "list_scenes", "args": {}}]}, None),
    ("godot_headless_op", {"operation": "get_uid", "params": '{"file_path": "scenes/level.tscn"}'}, None),
    ("godot_headless_batch", {"steps": [{"operation": "eval_expression", "params": {"expression": "1 + 1"}}]}, None),
    ("godot_sync_addon", {}, None),
    ("godot_rpc", {**NONE, "request_json": {"method": "ping"}}, OFFLINE),
    ("godot_inspect", {**NONE, "query_json": {"class_name": "Node"}}, OFFLINE),
    ("godot_editor_batch", {**NONE, "steps": [{"method": "ping"}]}, OFFLINE),
    # ---- managers ----
    *[
        ("godot_workspace_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("connect", {}, OFFLINE),
            ("status", {}, None),
            ("get_state", NONE, None),
            ("new_scene", {"scenePath": "scenes/two.tscn"}, None),
            ("open_scene", SCENE, OFFLINE),
            ("save_scene", SCENE, None),
            ("save_all", NONE, OFFLINE),
            ("run", {"scene": "scenes/two.tscn"}, None),
            ("stop", {}, None),
            ("smoke_test", {"scene": "main.tscn", "waitMs": 300}, None),
            ("guidelines.search", {"query": "tabs"}, None),
            ("guidelines.get_section", {"section": "Style"}, None),
            ("docs.search", {**NONE, "query": "sprite"}, None),
            ("docs.get_class", {**NONE, "className": "Sprite2D"}, None),
            ("doctor_report", {}, None),
        )
    ],
    *[
        ("godot_scene_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("create", {**SCENE, "nodeType": "Node2D", "nodeName": "Player"}, None),
            ("update", {**SCENE, "nodePath": "Player2", "props": {"position": [1, 2]}}, None),
            (
                "batch_create",
                {**SCENE, "items": [{"nodeType": "Node", "nodeName": "A"}, {"nodeType": "Node", "nodeName": "B"}]},
                None,
            ),
            ("attach_script", {**SCENE, "nodePath": "Player", "scriptPath": "player.gd"}, None),
            ("attach_components", {**SCENE, "nodePath": "Player", "components": ["Timer"]}, None),
            ("rename", {**SCENE, "nodePath": "A", "newName": "C"}, None),
            ("move", {**SCENE, "nodePath": "C", "index": 0}, None),
            ("duplicate", {**SCENE, "nodePath": "C"}, None),
            ("reparent", {**SCENE, "nodePath": "C2", "newParentPath": "C"}, None),
            ("instance", {**SCENE, "instanceScenePath": "scenes/two.tscn", "name": "Two"}, None),
            ("remove", {**SCENE, "nodePath": "C"}, None),
            ("undo", NONE, OFFLINE),
            ("redo", NONE, OFFLINE),
        )
    ],
    *[
        ("godot_inspector_manager", {"action": action, **SCENE, **arguments}, code)
        for action, arguments, code in (
            ("query", {"className": "Sprite2D"}, None),
            ("scene_tree.get", {}, None),
            ("inspect", {"nodePath": "Player"}, None),
            ("property_list", {"className": "Node2D"}, None),
            ("method_list", {"className": "Node2D"}, None),
            ("signals.list", {"className": "Node2D"}, None),
            ("select", {"nodePath": "Player"}, OFFLINE),
            ("get_selection", {}, OFFLINE),
            ("focus_node", {"nodePath": "Player"}, OFFLINE),
            (
                "connect_signal",
                {"fromNodePath": "Player", "signal": "hidden", "toNodePath": ".", "method": "hide"},
                None,
            ),
            ("signals.connections.list", {"sourceNodePath": "Player"}, None),
            (
                "disconnect_signal",
                {"fromNodePath": "Player", "signal": "hidden", "toNodePath": ".", "method": "hide"},
                None,
            ),
            ("resource.add", {"nodePath": "Player", "property": "texture", "resourceType": "GradientTexture2D"}, None),
            ("set_property", {"nodePath": "Player", "property": "position", "value": [5, 5]}, None),
            ("get_property", {"nodePath": "Player", "property": "position"}, None),
            ("groups.add", {"nodePath": "Player", "groupName": "z"}, None),
            ("groups.get", {"nodePath": "Player"}, None),
            ("groups.remove", {"nodePath": "Player", "groupName": "z"}, None),
            ("set_collision_layer", {"nodePath": "Player", "collisionLayer": 2}, "E_SCHEMA_VALIDATION"),
        )
    ],
    *[
        ("godot_code_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("script.create", {"scriptPath": "made.gd", "template": "character_2d", "className": "Made"}, None),
            ("script.read", {"scriptPath": "made.gd"}, None),
            ("script.attach", {**SCENE, "nodePath": "B", "scriptPath": "made.gd"}, None),
            ("gdscript.eval_restricted", {"expression": "a * 2", "vars": {"a": 21}}, None),
            ("shader.create", {"shaderPath": "s.gdshader", "content": "shader_type canvas_item;\n"}, None),
            ("shader.apply", {**SCENE, "nodePath": "Player", "shaderPath": "s.gdshader"}, None),
            ("file.read", {"filePath": "GUIDELINES.md"}, None),
            ("file.write", {"filePath": "notes.md", "content": "one\n"}, None),
            ("file.edit", {"filePath": "notes.md", "find": "one", "replace": "two", "dryRun": True}, None),
            ("file.write_binary", {"filePath": "art/b.bin", "base64": base64.b64encode(b"\0\1").decode()}, None),
        )
    ],
    *[
        ("godot_asset_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("get_uid", {"filePath": "scenes/two.tscn"}, None),
            ("uid_convert", {"filePath": "scenes/two.tscn"}, None),
            ("file_exists", {"filePath": "nowhere.gd"}, None),
            ("create_folder", {"dirPath": "levels/one"}, None),
            ("list_resources", {}, None),
            ("search_files", {"pattern": "*.gd"}, None),
            ("scene.read", SCENE, None),
            ("scene.duplicate", {"sourceScenePath": "copy.tscn", "destScenePath": "copy2.tscn"}, None),
            ("scene.rename", {"scenePath": "copy2.tscn", "newScenePath": "copy3.tscn"}, None),
            ("scene.replace_resource", {**SCENE, "oldResource": "player.gd", "newResource": "made.gd"}, None),
            ("scene.delete", {"scenePath": "copy3.tscn"}, None),
        )
    ],
    *[
        ("godot_project_config_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("project_info.get", {}, None),
            ("save_game_data", {"key": "score", "value": {"best": 3}}, None),
            ("load_game_data", {"key": "score"}, None),
            ("input_map.setup", {"actions": [{"name": "fire", "keys": ["X", 70]}]}, None),
            ("project_setting.set", {"key": "display/window/size/viewport_width", "value": 640}, None),
            ("project_setting.get", {"key": "display/window/size/viewport_width"}, None),
            ("errors.get_recent", NONE, None),
        )
    ],
    ("godot_log_manager", {**NONE, "action": "poll"}, None),
    ("godot_log_manager", {**NONE, "action": "tail"}, None),
    ("godot_log_manager", {**NONE, "action": "clear_output"}, None),
    ("meta_tool_manager", {**NONE, "action": "server_info"}, None),
    ("meta_tool_manager", {**NONE, "action": "tool_search", "query": "rename a node"}, None),
    ("meta_tool_manager", {**NONE, "action": "tool_help", "tool": "godot_scene_manager", "toolAction": "create"}, None),
    ("delete_script", {"scriptPath": "player.gd", "force": True}, None),
]

# Each takes the engine many seconds: GATEHOUSE_ENGINES=all runs them.
SLOW: list[tuple[str, Json, str | None]] = [
    ("import_asset", {"sourcePath": "raw.png", "destinationPath": "art/icon.png"}, None),
    ("godot_import_project_assets", {}, None),
    ("load_sprite", {**SCENE, "nodePath": "Player", "texturePath": "art/icon.png"}, None),
    (
        "godot_asset_manager",
        {"action": "load_texture", **SCENE, "nodePath": "Player", "texturePath": "art/icon.png"},
        None,
    ),
    ("godot_asset_manager", {"action": "auto_import_check", "files": ["art/icon.png"]}, None),
    ("reimport_assets", {"assetPaths": ["art/icon.png"], "method": "delete_import"}, None),
    ("godot_asset_manager", {"action": "scan"}, None),
    ("godot_asset_manager", {"action": "reimport", "paths": ["art/icon.png"]}, None),
    ("export_pack", {"preset": "Linux", "outputPath": "out/game.pck"}, None),
    ("export_project", {"preset": "Linux", "outputPath": "out/game.x86_64"}, UNSUPPORTED),
    ("generate_docs", {}, None),
    ("validate_conversion_3to4", {**NONE, "sourcePath": "{project}"}, None),
    ("convert_3to4", {**NONE, "sourcePath": "{project}", "targetPath": "{root}/four"}, None),
    ("launch_editor", {}, None),
    ("godot_workspace_manager", {"action": "launch"}, None),
    ("godot_workspace_manager", {"action": "restart"}, None),
]


def test_rows_cover_every_tool_and_action() -> None:
    rows = (*ROWS, *SLOW, *AUTHORING_ROWS, *BUILDER_ROWS, *GAME_ROWS)
    called = {(tool, arguments.get("action") if TOOLS[tool].actions else None) for tool, arguments, _ in rows}
    expected = {
        (tool.name, action.name if action else None) for tool in TOOLS.values() for action in tool.actions or (None,)
    }
    assert called == expected


def fill_placeholders(harness: Any, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("{root}", str(harness.root)).replace("{project}", str(harness.project))
    return (
        {name: fill_placeholders(harness, item) for name, item in value.items()} if isinstance(value, dict) else value
    )


async def run_rows(harness: Any, rows: list[tuple[str, Json, str | None]]) -> None:
    for tool, arguments, code in rows:
        envelope = await harness.call(tool, **fill_placeholders(harness, arguments))
        actual = None if envelope["ok"] else envelope["error"]["code"]
        assert actual == code, (tool, arguments, envelope["error"])


def create_files(project: Path) -> None:
    (project / "raw.png").write_bytes(png())
    (project / "meshes.tscn").write_text(MESHES)
    (project / "export_presets.cfg").write_text(PRESETS)
    (project / "GUIDELINES.md").write_text("# Style\n\nUse tabs.\n\n# Other\n")


async def test_every_tool_and_action_returns_the_expected_result(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), allow_dangerous_ops=True) as harness:
        create_files(harness.project)
        await run_rows(harness, ROWS[:-1])
        checked = await harness.call_ok("validate_project")
        assert checked["valid"], checked["issues"]
        await run_rows(harness, ROWS[-1:])


@pytest.mark.skipif(
    os.environ.get("GATEHOUSE_ENGINES") != "all", reason="minutes of engine time: GATEHOUSE_ENGINES=all"
)
async def test_every_slow_tool_returns_the_expected_result(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), allow_dangerous_ops=True) as harness:
        create_files(harness.project)
        await run_rows(harness, SLOW)
