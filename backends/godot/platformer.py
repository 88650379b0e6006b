"""The calls that build a platformer in an empty folder: tile map, instanced enemies, an inherited boss, a menu.

`gatehouse demo godot` and the tests make the same game.
"""

from typing import Any, Final

from gateway.contract import Json

Step = tuple[str, Json]

LEVEL: Final = "level.tscn"
_TILE: Final = 32
_GROUND_ROW: Final = 10
"""Row of the tile map that the player walks on."""

_PLAYER: Final = """extends CharacterBody2D

const SPEED := 220.0
const JUMP := -420.0

@export var coins := 0
var alive := true


func _physics_process(delta: float) -> void:
\tvelocity.y += 980.0 * delta
\tvelocity.x = Input.get_axis("walk_left", "walk_right") * SPEED if alive else 0.0
\tif alive and is_on_floor() and Input.is_action_just_pressed("jump"):
\t\tvelocity.y = JUMP
\tmove_and_slide()


func collect() -> void:
\tcoins += 1
\t$"../Hud/Coins".text = "Coins: %d" % coins


func die() -> void:
\talive = false
\tmodulate = Color(1, 0.2, 0.2)
\t$"../Hud/Over".visible = true
"""
_COIN: Final = """extends Area2D


func _on_body_entered(body: Node2D) -> void:
\tif body.has_method("collect"):
\t\tbody.collect()
\t\tqueue_free()
"""
_ENEMY: Final = """extends Area2D

@export var damage := 1


func _on_body_entered(body: Node2D) -> void:
\tif body.has_method("die"):
\t\tbody.die()
"""
_MENU: Final = """extends Control


func _on_start_pressed() -> void:
\tget_tree().change_scene_to_file("res://level.tscn")
"""


def steps(project: str) -> list[Step]:
    """Return the (tool, arguments) pairs in call order."""

    def do(tool: str, **arguments: Any) -> Step:
        return tool, {"projectPath": project, **arguments}

    def on(scene: str, tool: str, **arguments: Any) -> Step:
        return tool, {"projectPath": project, "scenePath": scene, **arguments}

    def node(scene: str, kind: str, name: str, parent: str = ".", **properties: Any) -> Step:
        return on(scene, "add_node", nodeType=kind, nodeName=name, parentNodePath=parent, properties=properties)

    def box(scene: str, parent: str, x: float, y: float) -> Step:
        params = {"sizeX": x, "sizeY": y}
        return on(
            scene,
            "create_collision_shape",
            parentNodePath=parent,
            nodeName="Shape",
            shapeType="rectangle",
            shapeParams=params,
        )

    def block(scene: str, color: str, x: float, y: float, parent: str = ".") -> Step:
        corners = [-x / 2, -y / 2, x / 2, -y / 2, x / 2, y / 2, -x / 2, y / 2]
        polygon = {"$type": "PackedVector2Array", "values": corners}
        return node(scene, "Polygon2D", "Picture", parent, polygon=polygon, color=color)

    def at(path: str, x: float, y: float) -> Step:
        return on(LEVEL, "edit_node", nodePath=path, properties={"position": [x, y]})

    def touched(scene: str) -> Step:
        ends = {"fromNodePath": ".", "signal": "body_entered", "toNodePath": "."}
        return on(scene, "connect_signal", **ends, method="_on_body_entered")

    ground = [
        {"position": {"x": x, "y": y}, "sourceId": 0, "atlasCoords": {"x": 0 if y == _GROUND_ROW else 1, "y": 0}}
        for x in range(36)
        for y in range(_GROUND_ROW, _GROUND_ROW + 4)
    ]
    ground_y = _GROUND_ROW * _TILE
    actions = [
        {"name": "walk_left", "keys": ["LEFT"]},
        {"name": "walk_right", "keys": ["RIGHT"]},
        {"name": "jump", "keys": ["SPACE"]},
    ]
    bob = {"playerNodePath": "Bob", "animationName": "bob"}
    return [
        do("create_project", name="Coins and thorns"),
        do("godot_project_config_manager", action="input_map.setup", actions=actions),
        do("configure_physics_layers", dimension="2d", layers=[{"layer": 1, "name": "world"}]),
        do("create_audio_bus", busName="Music", volume=-6),
        do("create_audio_bus", busName="Effects"),
        do("add_audio_effect", busName="Effects", effectType="reverb", effectParams={"room_size": 0.4}),
        do("write_script", scriptPath="player.gd", content=_PLAYER),
        do("write_script", scriptPath="coin.gd", content=_COIN),
        do("write_script", scriptPath="enemy.gd", content=_ENEMY),
        do("write_script", scriptPath="menu.gd", content=_MENU),
        # ---- the coin, with an animation ----
        on("coin.tscn", "create_scene", rootNodeType="Area2D"),
        box("coin.tscn", ".", 16, 16),
        block("coin.tscn", "gold", 16, 16),
        on("coin.tscn", "create_animation_player", nodeName="Bob"),
        on("coin.tscn", "add_animation", **bob, length=1, loop=True),
        on(
            "coin.tscn",
            "add_animation_track",
            **bob,
            trackType="value",
            nodePath="Picture",
            property="position",
        ),
        on("coin.tscn", "set_keyframe", **bob, trackIndex=0, time=0, value=[0, 0]),
        on("coin.tscn", "set_keyframe", **bob, trackIndex=0, time=0.5, value=[0, -6]),
        on("coin.tscn", "edit_node", nodePath="Bob", properties={"autoplay": "bob"}),
        on("coin.tscn", "attach_script", nodePath=".", scriptPath="coin.gd"),
        touched("coin.tscn"),
        # ---- the enemy, and a boss that inherits from it ----
        on("enemy.tscn", "create_scene", rootNodeType="Area2D"),
        box("enemy.tscn", ".", 24, 24),
        block("enemy.tscn", "purple", 24, 24),
        on("enemy.tscn", "attach_script", nodePath=".", scriptPath="enemy.gd"),
        touched("enemy.tscn"),
        do("create_inherited_scene", scenePath="boss.tscn", basePath="enemy.tscn"),
        on("boss.tscn", "edit_node", nodePath=".", properties={"damage": 3, "scale": [2, 2]}),
        on("boss.tscn", "edit_node", nodePath="Picture", properties={"color": "crimson"}),
        # ---- the level ----
        do(
            "create_tileset",
            tilesetPath="ground.tres",
            tileSize={"x": _TILE, "y": _TILE},
            colors=["forestgreen", "saddlebrown"],
            solid=True,
        ),
        on(LEVEL, "create_scene", rootNodeType="Node2D"),
        on(LEVEL, "create_tilemap_layer", nodeName="Ground", tilesetPath="ground.tres"),
        on(LEVEL, "paint_tiles", tilemapNodePath="Ground", tiles=ground),
        node(LEVEL, "CharacterBody2D", "Player", position=[100, ground_y - 60]),
        box(LEVEL, "Player", 20, 28),
        block(LEVEL, "deepskyblue", 20, 28, "Player"),
        on(LEVEL, "attach_script", nodePath="Player", scriptPath="player.gd"),
        node(LEVEL, "Node2D", "Coins"),
        on(LEVEL, "instance_scene", instancePath="coin.tscn", parentNodePath="Coins", instanceName="Coin1"),
        on(LEVEL, "instance_scene", instancePath="coin.tscn", parentNodePath="Coins", instanceName="Coin2"),
        at("Coins/Coin1", 260, ground_y - 16),
        at("Coins/Coin2", 380, ground_y - 90),
        node(LEVEL, "Node2D", "Enemies"),
        on(LEVEL, "instance_scene", instancePath="enemy.tscn", parentNodePath="Enemies", instanceName="Thorn"),
        on(LEVEL, "instance_scene", instancePath="boss.tscn", parentNodePath="Enemies", instanceName="Boss"),
        at("Enemies/Thorn", 600, ground_y - 12),
        at("Enemies/Boss", 900, ground_y - 24),
        # A child of an instance, changed here alone.
        on(LEVEL, "edit_node", nodePath="Enemies/Thorn/Picture", properties={"color": "darkgreen"}),
        on(LEVEL, "setup_audio_player", nodeName="Song", bus="Music"),
        node(LEVEL, "CanvasLayer", "Hud"),
        node(LEVEL, "Label", "Coins", "Hud", text="Coins: 0", position=[16, 12]),
        on(LEVEL, "create_control", nodeName="Over", parentNodePath="Hud", controlType="label", text="Game over"),
        on(LEVEL, "edit_node", nodePath="Hud/Over", properties={"visible": False, "position": [500, 200]}),
        # ---- the menu ----
        on("menu.tscn", "create_scene", rootNodeType="Control"),
        on("menu.tscn", "attach_script", nodePath=".", scriptPath="menu.gd"),
        on("menu.tscn", "create_ui_container", nodeName="Box", containerType="vbox", anchorsPreset="center"),
        on("menu.tscn", "create_control", nodeName="Title", parentNodePath="Box", controlType="label", text="Coins"),
        on("menu.tscn", "create_control", nodeName="Start", parentNodePath="Box", controlType="button", text="Start"),
        on(
            "menu.tscn",
            "connect_signal",
            fromNodePath="Box/Start",
            signal="pressed",
            toNodePath=".",
            method="_on_start_pressed",
        ),
        do("set_project_setting", key="application/run/main_scene", value="res://menu.tscn"),
        do("validate_project"),
    ]


def play_steps(project: str) -> list[Step]:
    """Return the calls that play the level: walk, collect a coin, jump, and run into a thorn."""

    def game(action: str, **arguments: Any) -> Step:
        return "godot_game_manager", {"projectPath": project, "action": action, **arguments}

    def press(name: str, *, pressed: bool = True) -> Step:
        return game("input", events=[{"type": "action", "name": name, "pressed": pressed}])

    def until(path: str, name: str, comparison: str, value: Any) -> Step:
        condition = {"nodePath": path, "property": name, "is": comparison, "value": value}
        return game("run", frames=300, until=condition)

    return [
        game("start", scene=LEVEL),
        game("run", frames=30),
        game("screenshot"),
        press("walk_right"),
        until("Player", "coins", "equal", 1),
        game("screenshot"),
        until("Player", "position:x", "greater", 330),
        press("jump"),
        until("Player", "coins", "equal", 2),
        game("screenshot"),
        press("jump", pressed=False),
        until("Player", "alive", "equal", False),
        game("run", frames=10, stripEvery=5),
        game("screenshot"),
        game("get_property", nodePath="Player", property="coins"),
        game("stop"),
    ]
