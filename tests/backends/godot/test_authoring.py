"""Tools that build parts of a game, each on the real engine. What they write is read back by the engine."""

import json
from typing import Any

import pytest

from tests.backends.godot.test_every_tool import png, run_rows

Json = dict[str, Any]
SCENE = {"scenePath": "main.tscn"}
WALK = {"playerNodePath": "Moves", "animationName": "walk"}
LDTK = {
    "levels": [
        {
            "identifier": "Level_0",
            "layerInstances": [
                {
                    "__identifier": "Ground",
                    "__gridSize": 2,
                    "__tilesetRelPath": None,
                    "entityInstances": [{"__identifier": "Spawn", "px": [4, 6]}],
                }
            ],
        }
    ]
}

ROWS: list[tuple[str, Json, str | None]] = [
    # ---- animation ----
    ("create_animation_player", {**SCENE, "nodeName": "Moves"}, None),
    ("add_animation", {**SCENE, **WALK, "length": 2, "loop": True}, None),
    ("add_animation", {**SCENE, **WALK}, "E_SCHEMA_VALIDATION"),
    (
        "add_animation_track",
        {**SCENE, **WALK, "trackType": "value", "nodePath": "Player", "property": "position"},
        None,
    ),
    ("set_keyframe", {**SCENE, **WALK, "trackIndex": 0, "time": 0, "value": [0, 0]}, None),
    ("set_keyframe", {**SCENE, **WALK, "trackIndex": 0, "time": 1.5, "value": {"x": 10, "y": 5}}, None),
    ("set_keyframe", {**SCENE, **WALK, "trackIndex": 7, "time": 1, "value": 1}, "E_NOT_FOUND"),
    (
        "add_animation_track",
        {**SCENE, **WALK, "trackType": "method", "nodePath": "Player"},
        None,
    ),
    ("set_keyframe", {**SCENE, **WALK, "trackIndex": 1, "time": 1, "value": {"method": "hide"}}, None),
    ("create_animation_tree", {**SCENE, "nodeName": "Tree", "animPlayerPath": "Moves"}, None),
    (
        "setup_state_machine",
        {
            **SCENE,
            "animTreePath": "Tree",
            "states": [{"name": "idle", "animation": "walk"}, {"name": "run", "animation": "walk"}],
            "transitions": [{"from": "idle", "to": "run", "xfadeTime": 0.2, "advanceCondition": "moving"}],
            "startState": "idle",
        },
        None,
    ),
    (
        "blend_animations",
        {
            **SCENE,
            "animTreePath": "Tree",
            "blendSpaceName": "speeds",
            "type": "1d",
            "points": [{"animation": "walk", "position": 0}, {"animation": "walk", "position": 1}],
        },
        None,
    ),
    # ---- tile maps ----
    (
        "create_tileset",
        {"tilesetPath": "ground.tres", "tileSize": {"x": 16, "y": 16}, "colors": ["green", "brown"], "solid": True},
        None,
    ),
    ("create_tileset", {"tilesetPath": "ground.tres", "tileSize": {"x": 16, "y": 16}}, "E_SCHEMA_VALIDATION"),
    ("create_tilemap_layer", {**SCENE, "nodeName": "Ground", "tilesetPath": "ground.tres"}, None),
    (
        "set_tile",
        {
            **SCENE,
            "tilemapNodePath": "Ground",
            "position": {"x": 1, "y": 2},
            "sourceId": 0,
            "atlasCoords": {"x": 1, "y": 0},
        },
        None,
    ),
    (
        "paint_tiles",
        {
            **SCENE,
            "tilemapNodePath": "Ground",
            "tiles": [
                {"position": {"x": x, "y": 5}, "sourceId": 0, "atlasCoords": {"x": 0, "y": 0}} for x in range(20)
            ],
        },
        None,
    ),
    (
        "set_tile",
        {
            **SCENE,
            "tilemapNodePath": "Ground",
            "position": {"x": 1, "y": 2},
            "sourceId": 9,
            "atlasCoords": {"x": 1, "y": 0},
        },
        "E_NOT_FOUND",
    ),
    (
        "import_ldtk_level",
        {
            "ldtkPath": "level.ldtk",
            "outputPath": "level_0.tscn",
            "entityMapping": [{"ldtkIdentifier": "Spawn", "godotNodeType": "Marker2D"}],
        },
        None,
    ),
    # ---- physics ----
    ("add_node", {**SCENE, "nodeType": "RigidBody2D", "nodeName": "Ball"}, None),
    (
        "create_collision_shape",
        {**SCENE, "parentNodePath": "Ball", "shapeType": "circle", "shapeParams": {"radius": 7}},
        None,
    ),
    (
        "create_collision_shape",
        {**SCENE, "parentNodePath": "Ball", "nodeName": "Outline", "shapeType": "polygon"},
        None,
    ),
    ("setup_rigidbody", {**SCENE, "nodePath": "Ball", "mass": 2, "gravity_scale": 0.5}, None),
    ("setup_rigidbody", {**SCENE, "nodePath": "Player"}, "E_SCHEMA_VALIDATION"),
    ("configure_physics_layers", {"dimension": "2d", "layers": [{"layer": 1, "name": "world"}]}, None),
    # ---- audio ----
    ("create_audio_bus", {"busName": "Music", "volume": -6}, None),
    ("create_audio_bus", {"busName": "Effects", "parentBus": "None"}, "E_NOT_FOUND"),
    ("add_audio_effect", {"busName": "Music", "effectType": "reverb", "effectParams": {"room_size": 0.9}}, None),
    ("add_audio_effect", {"busName": "Nowhere", "effectType": "reverb"}, "E_NOT_FOUND"),
    ("setup_audio_player", {**SCENE, "nodeName": "Song", "bus": "Music", "volumeDb": -3}, None),
    # ---- shaders and particles ----
    (
        "create_shader",
        {"shaderPath": "flash.gdshader", "shaderType": "canvas_item", "fragmentCode": "COLOR = vec4(1.0);"},
        None,
    ),
    (
        "godot_code_manager",
        {
            "action": "shader.create",
            "shaderPath": "tint.gdshader",
            "content": "shader_type canvas_item;\nuniform float strength = 1.0;\n",
        },
        None,
    ),
    (
        "create_shader_material",
        {"materialPath": "tint.tres", "shaderPath": "tint.gdshader", "parameters": {"strength": 0.5}},
        None,
    ),
    ("create_particle_material", {"materialPath": "sparks.tres", "gravity": {"x": 0, "y": 98, "z": 0}}, None),
    ("create_gpu_particles", {**SCENE, "nodeName": "Sparks", "amount": 20, "materialPath": "sparks.tres"}, None),
    # ---- navigation ----
    ("create_navigation_region", {**SCENE, "nodeName": "Paths"}, None),
    ("bake_navigation_mesh", {"meshPath": "floor.tres", "is3D": True, "agentRadius": 0.5}, None),
    # ---- user interface ----
    (
        "create_ui_container",
        {**SCENE, "nodeName": "Menu", "containerType": "vbox", "anchorsPreset": "center"},
        None,
    ),
    (
        "create_control",
        {**SCENE, "nodeName": "Start", "parentNodePath": "Menu", "controlType": "button", "text": "Start"},
        None,
    ),
    # ---- light ----
    ("create_light", {**SCENE, "nodeName": "Lamp", "lightType": "point_2d", "energy": 0.8}, None),
    ("setup_environment", {"environmentPath": "sky.tres", "backgroundMode": "sky", "glowEnabled": True}, None),
    ("setup_lightmapper", {"scenePath": "space.tscn", "quality": "low"}, None),
    ("setup_lightmapper", {"scenePath": "space.tscn", "bake": True}, "E_UNSUPPORTED"),
    # ---- inherited scenes ----
    ("create_inherited_scene", {"scenePath": "boss.tscn", "basePath": "main.tscn"}, None),
    # ---- actions of managers ----
    *[
        ("godot_inspector_manager", {"action": action, **SCENE, **arguments}, code)
        for action, arguments, code in (
            ("animation.list", {"playerPath": "Moves"}, None),
            (
                "animation.create_simple",
                {
                    "playerPath": "Moves",
                    "animation": "fade",
                    "nodePath": "Player",
                    "property": "modulate",
                    "startValue": "white",
                    "endValue": "red",
                },
                None,
            ),
            ("audio.set_bus_volume", {"bus": "Music", "volumeDb": -12}, None),
            ("set_property", {"nodePath": "Player", "property": "material", "value": "res://tint.tres"}, None),
        )
    ],
    (
        "godot_scene_manager",
        {
            "action": "create_tilemap",
            **SCENE,
            "nodeName": "Walls",
            "tileSetPath": "ground.tres",
            "cells": [{"x": 0, "y": 0}, {"x": 1, "y": 0}],
        },
        None,
    ),
]


async def test_every_authoring_tool_writes_what_the_engine_reads(engine_harness: Any) -> None:
    project = engine_harness.project
    (project / "level.ldtk").write_text(json.dumps(LDTK))
    (project / "raw.png").write_bytes(png())
    (project / "space.tscn").write_text('[gd_scene format=3]\n\n[node name="Space" type="Node3D"]\n')
    await run_rows(engine_harness, ROWS)
    checked = await engine_harness.call_ok("validate_project")
    assert checked["valid"], checked["issues"]
    text = (project / "main.tscn").read_text()
    assert '"values": [Vector2(0, 0), Vector2(10, 5)]' in text
    assert 'metadata/keep = [1, &"name", Array[int]([1, 2])' in text
    assert "; a comment of the author's" in text
    buses = (project / "default_bus_layout.tres").read_text()
    assert "bus/1/volume_db = -12.0" in buses
    assert "room_size = 0.9" in buses
    animations = await engine_harness.call_ok(
        "godot_inspector_manager", action="animation.list", **SCENE, playerPath="Moves"
    )
    assert {each["name"]: each["tracks"] for each in animations["animations"]} == {"walk": 2, "fade": 1}


async def test_a_new_key_changes_the_lines_of_its_track_alone(engine_harness: Any) -> None:
    scene = engine_harness.project / "main.tscn"
    for tool, arguments, _ in ROWS[:1] + ROWS[1:2] + ROWS[3:5]:
        await engine_harness.call_ok(tool, **arguments)
    before = scene.read_text().splitlines()
    await engine_harness.call_ok("set_keyframe", **SCENE, **WALK, trackIndex=0, time=1.5, value=[3, 4])
    after = scene.read_text().splitlines()
    assert len(after) == len(before)
    changed = [line for line, old in zip(after, before, strict=True) if line != old]
    assert [line.partition(":")[0] for line in changed] == ['"times"', '"transitions"', '"values"']


async def test_errors_of_a_shader_come_with_their_lines(engine_harness: Any) -> None:
    code = "shader_type canvas_item;\n\nvoid fragment() {\n\tCOLOR = vec4(nosuch);\n}\n"
    made = await engine_harness.call_ok(
        "godot_code_manager", action="shader.create", shaderPath="bad.gdshader", content=code
    )
    assert made["compiles"] is False
    assert made["errors"][0]["line"] == 4
    assert "nosuch" in made["errors"][0]["message"]


async def test_settings_have_the_types_of_the_engine(harness: Any) -> None:
    key = "display/window/size/viewport_width"
    for value in ("800", 800):
        await harness.call_ok("set_project_setting", key=key, value=str(value))
        assert f"size/viewport_width={800}\n" in (harness.project / "project.godot").read_text()
    assert await harness.error_code("set_project_setting", key=key, value="abc") == "E_SCHEMA_VALIDATION"
    found = await harness.call_ok("get_project_settings", key=key)
    assert (found["value"], found["type"], found["default"]) == (800, "int", False)
    found = await harness.call_ok("get_project_settings", key="display/window/size/viewport_height")
    assert (found["value"], found["default"]) == (648, True)
    assert await harness.error_code("get_project_settings", key="no/such") == "E_NOT_FOUND"


async def test_failed_batch_is_not_ok_and_has_the_outcome_of_each_part(harness: Any) -> None:
    operations = [{"tool": "list_scenes", "args": {}}, {"tool": "read_script", "args": {"scriptPath": "no.gd"}}]
    envelope = await harness.call("batch_operations", operations=operations)
    assert envelope["ok"] is False
    assert envelope["result"] is None
    assert envelope["error"]["code"] == "E_NOT_FOUND"
    assert [each["success"] for each in envelope["details"]["results"]] == [True, False]


async def test_new_project_ignores_the_caches_of_engine_and_gateway(harness: Any) -> None:
    folder = harness.root / "fresh"
    await harness.call_ok("create_project", projectPath=str(folder), name="Fresh")
    assert (folder / ".gitignore").read_text().splitlines()[1:] == [".godot/", ".godot_mcp/"]


@pytest.mark.parametrize("existing", [False, True])
async def test_script_that_cannot_be_checked_is_put_back(open_harness: Any, engine: Any, existing: bool) -> None:
    endless = "extends Node\nstatic var x = spin()\nstatic func spin() -> int:\n\twhile true:\n\t\tpass\n\treturn 1\n"
    async with open_harness(godot_path=str(engine), task_timeout=1.5) as harness:
        path = harness.project / "loop.gd"
        if existing:
            path.write_text("extends Node\n")
        code = await harness.error_code("write_script", scriptPath="loop.gd", content=endless, overwrite=existing)
        assert code == "E_TIMEOUT"
        assert (path.read_text() == "extends Node\n") if existing else not path.exists()
