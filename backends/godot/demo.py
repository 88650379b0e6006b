"""`gatehouse demo godot`: builds a small game in an empty folder with tool calls and runs it on the real engine."""

from itertools import groupby
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.godot.engine.process import Engine
from backends.godot.options import Options
from gateway.contract import Json
from gateway.errors import Fault, Kind

TITLE: Final = "Godot: build a small game in an empty folder with tool calls and run it on the real engine."

_DESCRIPTIVE_ARGUMENTS: Final = (
    "nodeName",
    "instanceName",
    "scriptPath",
    "signal",
    "nodePath",
    "scenePath",
    "value",
    "name",
)
"""Arguments that describe a call best, in order of preference."""

MAIN: Final = "main.tscn"
COIN: Final = "coin.tscn"

_PLAYER: Final = """extends CharacterBody2D

@export var speed := 220.0


func _physics_process(_delta: float) -> void:
\tvelocity = Input.get_vector("ui_left", "ui_right", "ui_up", "ui_down") * speed
\tmove_and_slide()
"""
_COIN: Final = """extends Area2D

signal taken


func _on_body_entered(_body: Node2D) -> void:
\ttaken.emit()
\tqueue_free()
"""
_GAME: Final = """extends Node2D

var score := 0


func _ready() -> void:
\tfor coin in $Coins.get_children():
\t\tcoin.taken.connect(_on_coin_taken)
\tprint("ready: %d coins" % $Coins.get_child_count())


func _on_coin_taken() -> void:
\tscore += 1
\t$Score.text = "Coins: %d" % score
"""


async def prepare(folder: Path, engine: str | None = None) -> Json:
    """Return the `backends:` entry of the demo. Raises `Fault(UNSUPPORTED)` without an engine."""
    options: Json = {"godot_path": engine}
    if not Engine(Options.model_validate(options)).is_available:
        raise Fault(Kind.UNSUPPORTED, "no Godot 4 engine found; pass --engine or set GODOT_PATH")
    return {"godot": {"module": "backends.godot", "options": options}}


async def play(demo: Demo) -> Json:
    """Run all steps and return the facts for `--json`."""
    project = demo.files / "godot" / "projects" / "coins"
    answers: dict[str, Json] = {}
    for tool, calls in groupby(steps(str(project)), key=lambda step: step[0]):
        batch = [arguments for _, arguments in calls]
        full_name = f"godot_{tool.removeprefix('godot_')}"
        demo.step(full_name, ", ".join(_describe_arguments(arguments) for arguments in batch))
        for arguments in batch:
            answers[tool] = (await demo.call(full_name, arguments))["result"]
        for line in _result_notes(tool, answers[tool]):
            demo.note(line)
    run_result, tree = answers["godot_workspace_manager"], answers["get_node_tree"]
    return {
        "project": str(project),
        "valid": answers["validate_project"]["valid"],
        "said": run_result["output"],
        "errors": run_result["errors"],
        "tree": tree["picture"].splitlines(),
    }


def _result_notes(tool: str, result: Json) -> list[str]:
    """Return the lines to show for a result."""
    match tool:
        case "validate_project":
            return ["every script compiles, every scene loads" if result["valid"] else str(result["issues"])]
        case "godot_workspace_manager":
            # Skip engine warnings: a project that no editor has opened yet produces some.
            printed = [line for line in result["output"] if line and not line.startswith(("WARNING", " "))]
            return [f"the game ran and printed: {line}" for line in printed]
        case "get_node_tree":
            return result["picture"].splitlines()
        case _:
            return []


def _describe_arguments(arguments: Json) -> str:
    return next(
        (str(arguments[name]) for name in _DESCRIPTIVE_ARGUMENTS if name in arguments), arguments.get("action", "")
    )


def steps(project: str) -> list[tuple[str, Json]]:
    """Return the (tool, arguments) pairs of the demo in call order."""

    def on(scene: str, **arguments: object) -> Json:
        return {"projectPath": project, "scenePath": scene, **arguments}

    def node(scene: str, kind: str, name: str, parent: str = ".", **properties: object) -> tuple[str, Json]:
        return "add_node", on(scene, nodeType=kind, nodeName=name, parentNodePath=parent, properties=properties)

    def script(path: str, content: str) -> tuple[str, Json]:
        return "write_script", {"projectPath": project, "scriptPath": path, "content": content}

    circle = {"$resource": "CircleShape2D", "props": {"radius": 12}}
    round_body = {"$resource": "GradientTexture2D", "props": {"width": 24, "height": 24, "fill": 1}}
    coins = [
        ("instance_scene", on(MAIN, instancePath=COIN, parentNodePath="Coins", instanceName=f"Coin{number}"))
        for number in (1, 2, 3)
    ]
    positions = [
        ("edit_node", on(MAIN, nodePath=f"Coins/Coin{number}", properties={"position": [120 * number, 160]}))
        for number in (1, 2, 3)
    ]
    return [
        ("create_project", {"projectPath": project, "name": "Coins"}),
        script("player.gd", _PLAYER),
        script("coin.gd", _COIN),
        script("game.gd", _GAME),
        ("create_scene", on(COIN, rootNodeType="Area2D")),
        node(COIN, "CollisionShape2D", "Shape", shape=circle),
        node(COIN, "Sprite2D", "Picture", texture=round_body, modulate="gold"),
        ("attach_script", on(COIN, nodePath=".", scriptPath="coin.gd")),
        (
            "connect_signal",
            on(COIN, fromNodePath=".", signal="body_entered", toNodePath=".", method="_on_body_entered"),
        ),
        ("create_scene", on(MAIN, rootNodeType="Node2D")),
        node(MAIN, "CharacterBody2D", "Player", position=[60, 160]),
        node(MAIN, "CollisionShape2D", "Shape", "Player", shape=circle),
        node(MAIN, "Sprite2D", "Picture", "Player", texture=round_body, modulate="cyan"),
        ("attach_script", on(MAIN, nodePath="Player", scriptPath="player.gd")),
        node(MAIN, "Node2D", "Coins"),
        *coins,
        *positions,
        node(MAIN, "Label", "Score", text="Coins: 0", position=[16, 12]),
        ("attach_script", on(MAIN, nodePath=".", scriptPath="game.gd")),
        (
            "set_project_setting",
            {"projectPath": project, "key": "application/run/main_scene", "value": f"res://{MAIN}"},
        ),
        ("validate_project", {"projectPath": project}),
        ("godot_workspace_manager", {"action": "smoke_test", "projectPath": project, "waitMs": 1000}),
        ("get_node_tree", on(MAIN, maxDepth=3)),
    ]
