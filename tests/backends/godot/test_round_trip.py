"""Edits of scenes that the engine wrote change nothing else, and the engine loads the result."""

import difflib
import json
import random
import subprocess
from pathlib import Path
from typing import Any

from backends.godot.text import node_edits
from backends.godot.text.scene import Scene
from backends.godot.text.tree import SceneTree

COUNT = 110

CREATE_SCENES = r"""
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

CHECK_SCENES = """
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
    """Return (removed lines, added lines)."""
    removed, added = [], []
    for line in difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True)):
        if line[0] == "-" and line[2:].strip():
            removed.append(line[2:])
        elif line[0] == "+" and line[2:].strip():
            added.append(line[2:])
    return removed, added


def with_node(scene: Scene, parent: str, name: str, values: dict[str, str]) -> Scene:
    tree = SceneTree("res://main.tscn", scene, {})
    return tree.with_child(tree.find(parent), name, 'type="Node"', values)


def apply_random_edit(number: int, scene: Scene, rng: random.Random) -> tuple[Scene, int]:
    """Apply one edit. Returns the scene and the maximum number of removed lines (rewritten headers)."""
    node = rng.choice(scene.nodes[1:])
    reference_count = sum(section.tag in ("node", "connection") for section in scene.sections)
    match number % 10:
        case 0:
            return scene.with_properties(node.path, {"metadata/new": "42"}), 0
        case 1:
            return with_node(scene, node.path, "Newcomer", {"metadata/x": '"y"'}), 0
        case 2:
            return node_edits.rename(scene, node.path, "Renamed"), reference_count
        case 3:
            return node_edits.duplicate(scene, node.path, "Copy")[0], 0
        case 4:
            return node_edits.set_groups(scene, node.path, ["fresh"]), 1
        case 5:
            return node_edits.connect(scene, node.path, "ready", ".", "queue_free", None), 0
        case 6:
            return scene.with_sub_resource("Gradient", {"offsets": "PackedFloat32Array(0, 1)"})[0], 0
        case 7:
            scene_files = with_node(scene, ".", "Newcomer", {})
            return node_edits.reparent(scene_files, "Newcomer", node.path), 0
        case 8:
            scene_files = with_node(scene, node.path, "Newcomer", {"metadata/x": "1"})
            scene_files = node_edits.connect(scene_files, f"{node.path}/Newcomer", "ready", ".", "queue_free", None)
            # Removing the added node must restore the original text.
            return node_edits.remove(scene_files, f"{node.path}/Newcomer")[0], 0
        case _:
            return scene.with_external("Script", "res://script.gd")[0], 0


def test_edits_of_engine_written_scenes_change_nothing_else_and_load(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "project.godot").write_text("config_version=5\n")
    run(engine, tmp_path, CREATE_SCENES)
    scene_files = sorted(tmp_path.glob("s*.tscn"))
    assert len(scene_files) == COUNT
    rng = random.Random(11)
    for number, path in enumerate(scene_files):
        raw = path.read_bytes()
        scene = Scene(raw.decode())
        assert scene.apply_edits([]).text.encode() == raw
        after, max_removed = apply_random_edit(number, scene, rng)
        removed, added = changed_lines(scene.text, after.text)
        assert len(removed) <= max_removed, (path.name, removed)
        assert all(line.startswith("[") for line in removed), (path.name, removed)
        if number % 10 == 8:
            assert after.text == scene.text
        else:
            assert added
        path.write_text(after.text)
    output: Any = run(engine, tmp_path, CHECK_SCENES)
    assert json.loads(output.split("@@")[1]) == []
