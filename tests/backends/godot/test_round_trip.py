"""Scenes that the engine wrote: each edit leaves every untouched byte alone, and the engine loads the result."""

import difflib
import json
import random
import subprocess
from pathlib import Path
from typing import Any

from backends.godot.text import node_edits
from backends.godot.text.scene import Scene

COUNT = 110

MAKER = r"""
extends SceneTree

const KINDS := ["Node", "Node2D", "Sprite2D", "Label", "Timer", "Node3D", "Button", "Area2D", "Camera2D"]

func _initialize() -> void:
	seed(7)
	for number in COUNT:
		var root: Node = ClassDB.instantiate(KINDS[randi() % KINDS.size()])
		root.name = "Root %d" % number
		var all: Array[Node] = [root]
		for index in 1 + randi() % 12:
			var node: Node = ClassDB.instantiate(KINDS[randi() % KINDS.size()])
			node.name = "%s ü%d" % [node.get_class(), index]
			var parent: Node = all[randi() % all.size()]
			parent.add_child(node)
			node.owner = root
			decorate(node)
			all.append(node)
		for index in randi() % 3:
			all[randi() % all.size()].connect("renamed", Callable(root, "queue_free"), CONNECT_PERSIST)
			break
		var scene := PackedScene.new()
		scene.pack(root)
		ResourceSaver.save(scene, "res://s%03d.tscn" % number)
		root.free()
	quit(0)

func decorate(node: Node) -> void:
	node.set_meta("names", [&"a", NodePath("b/c"), {"k": [1, 2.5, true, null]}, Vector3(1, 2, 3)])
	var typed: Array[int] = [1, 2, 3]
	node.set_meta("typed", typed)
	node.set_meta("packed", PackedStringArray(["x; y", "[node]", "q\"uote\\"]))
	if randi() % 2:
		node.add_to_group("group %d" % (randi() % 3), true)
	if node is Label:
		node.text = "line one\n; not a comment\n[node name=\"no\"]\n\ttab \"quoted\" \\ back"
	if node is Sprite2D:
		var texture := GradientTexture2D.new()
		texture.gradient = Gradient.new()
		texture.gradient.offsets = PackedFloat32Array([0.0, 0.5, 1.0])
		node.texture = texture
	if node is Node2D:
		node.position = Vector2(randf(), -1e-7)
""".replace("COUNT", str(COUNT))

CHECKER = """
extends SceneTree

func _initialize() -> void:
	var bad := []
	for name in DirAccess.get_files_at("res://"):
		if name.ends_with(".tscn"):
			var scene: Variant = ResourceLoader.load("res://" + name)
			if not scene is PackedScene or not scene.can_instantiate():
				bad.append(name)
			else:
				var root: Node = scene.instantiate()
				if root == null:
					bad.append(name)
				else:
					root.free()
	print("@@" + JSON.stringify(bad))
	quit(0)
"""


def run(engine: Path, project: Path, script: str) -> str:
    (project / "script.gd").write_text(script)
    command = [engine, "--headless", "--no-header", "--path", project, "--script", "res://script.gd"]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, env={"HOME": str(project)}
    ).stdout


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """(lines gone, lines come)."""
    gone, come = [], []
    for line in difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True)):
        if line[0] == "-" and line[2:].strip():
            gone.append(line[2:])
        elif line[0] == "+" and line[2:].strip():
            come.append(line[2:])
    return gone, come


def edit(number: int, scene: Scene, choose: random.Random) -> tuple[Scene, int]:
    """One edit, and how many lines it may take away at most: those of headers that it rewrites."""
    node = choose.choice(scene.nodes[1:])
    touching = sum(section.tag in ("node", "connection") for section in scene.sections)
    match number % 10:
        case 0:
            return scene.with_properties(node.path, {"metadata/new": "42"}), 0
        case 1:
            return scene.with_node(node.path, "Newcomer", 'type="Node"', {"metadata/x": '"y"'}), 0
        case 2:
            return node_edits.rename(scene, node.path, "Renamed"), touching
        case 3:
            return node_edits.duplicate(scene, node.path, None)[0], 0
        case 4:
            return node_edits.regroup(scene, node.path, ["fresh"]), 1
        case 5:
            return node_edits.connect(scene, node.path, "ready", ".", "queue_free", None), 0
        case 6:
            return scene.with_sub_resource("Gradient", {"offsets": "PackedFloat32Array(0, 1)"})[0], 0
        case 7:
            made = scene.with_node(".", "Newcomer", 'type="Node"', {})
            return node_edits.reparent(made, "Newcomer", node.path), 0
        case 8:
            made = scene.with_node(node.path, "Newcomer", 'type="Node"', {"metadata/x": "1"})
            made = node_edits.connect(made, f"{node.path}/Newcomer", "ready", ".", "queue_free", None)
            # Everything that was added is gone again, and nothing else is.
            return node_edits.remove(made, f"{node.path}/Newcomer")[0], 0
        case _:
            return scene.with_external("Script", "res://script.gd")[0], 0


def test_each_edit_of_a_hundred_scenes_leaves_the_rest_alone_and_loads(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "project.godot").write_text("config_version=5\n")
    run(engine, tmp_path, MAKER)
    made = sorted(tmp_path.glob("s*.tscn"))
    assert len(made) == COUNT
    choose = random.Random(11)
    for number, path in enumerate(made):
        raw = path.read_bytes()
        scene = Scene(raw.decode())
        assert scene.edited([]).text.encode() == raw
        after, at_most = edit(number, scene, choose)
        gone, come = changed_lines(scene.text, after.text)
        assert len(gone) <= at_most, (path.name, gone)
        assert all(line.startswith("[") for line in gone), (path.name, gone)
        if number % 10 == 8:
            assert after.text == scene.text
        else:
            assert come
        path.write_text(after.text)
    said: Any = run(engine, tmp_path, CHECKER)
    assert json.loads(said.split("@@")[1]) == []
