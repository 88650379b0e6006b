"""Calls of every tool that builds or plays a game, in the order in which they build on each other."""

from typing import Any

Json = dict[str, Any]
SCENE = {"scenePath": "main.tscn"}
WALK = {"playerNodePath": "Moves", "animationName": "walk"}
MATERIAL = {"$resource": "ShaderMaterial", "props": {"shader": "res://tint.gdshader"}}
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
    ("bake_navigation_mesh", {"meshPath": "navigation.tres", "is3D": True, "agentRadius": 0.5}, None),
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
            ("set_property", {"nodePath": "Player", "property": "material", "value": MATERIAL}, None),
            ("shader.set_param", {"nodePath": "Player", "param": "strength", "value": 0.25}, None),
            ("shader.set_param", {"nodePath": "Player", "param": "no_such", "value": 1}, "E_NOT_FOUND"),
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

SPACE = {"scenePath": "space.tscn"}
BUILDER_ROWS: list[tuple[str, Json, str | None]] = [
    *[
        ("godot_builder_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            *[
                ("lighting_preset", {**SPACE, "lightingPreset": name}, None)
                for name in ("basic_3d", "basic_2d", "sunny", "overcast", "sunset", "night", "indoor")
            ],
            ("create_primitive", {**SPACE, "nodeName": "Ring", "primitive": "torus"}, None),
            *[
                ("create_ui_template", {**SPACE, "uiTemplate": name}, None)
                for name in ("basic", "hud", "menu", "main_menu", "pause_menu", "dialogue_box", "inventory_grid")
            ],
            ("create_audio_player", {**SPACE, "nodeName": "Hum", "is3D": True}, None),
            ("spawn_fps_controller", SPACE, None),
            ("create_health_bar_ui", SPACE, None),
            ("spawn_spinning_pickup", SPACE, None),
            ("create_particle_effect", {**SCENE, "effect": "fire"}, None),
            ("generate_terrain_mesh", {**SPACE, "size": 8, "seed": 3}, None),
            ("create_terrain_material", {}, None),
            ("create_trigger_area", {**SCENE, "nodeName": "Gate"}, None),
            ("create_rigidbody", {**SPACE, "nodeName": "Crate", "is3D": True}, None),
            ("set_anchor_preset", {**SPACE, "nodePath": "HealthBar/Bar", "anchorPreset": "top_wide"}, None),
            ("set_anchor_values", {**SPACE, "nodePath": "HealthBar/Bar", "offsetLeft": 8}, None),
        )
    ],
    (
        "godot_scene_manager",
        {
            "action": "create_ui",
            **SCENE,
            "uiRootName": "Panel",
            "uiRootType": "PanelContainer",
            "elements": [{"type": "Label", "name": "Hello", "properties": {"text": "Hello"}}],
        },
        None,
    ),
]

# Need a virtual display.
GAME_ROWS: list[tuple[str, Json, str | None]] = [
    ("take_screenshot", {**SCENE, "delay": 0.1}, None),
    *[
        ("godot_game_manager", {"action": action, **arguments}, code)
        for action, arguments, code in (
            ("run", {"frames": 1}, "E_NOT_FOUND"),
            ("start", {"scene": "main.tscn"}, None),
            ("run", {"frames": 2}, None),
            ("input", {"events": [{"type": "action", "name": "ui_accept"}]}, None),
            ("input", {"events": [{"type": "key", "key": "Space"}, {"type": "mouse_button", "x": 5, "y": 5}]}, None),
            ("input", {"events": [{"type": "joypad_button", "button": 0}, {"type": "joypad_axis", "value": 1}]}, None),
            ("input", {"events": [{"type": "action", "name": "fly"}]}, "E_NOT_FOUND"),
            ("tree", {}, None),
            ("get_property", {"nodePath": "Player", "property": "position"}, None),
            ("set_property", {"nodePath": "Player", "property": "position", "value": [1, 2]}, None),
            ("call", {"nodePath": "Player", "method": "hide"}, None),
            ("evaluate", {"expression": "get_child_count()"}, None),
            ("screenshot", {"maxSize": 64}, None),
            ("performance", {}, None),
            ("stop", {}, None),
        )
    ],
]
