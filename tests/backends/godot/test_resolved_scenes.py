"""Tools on instanced and inherited scenes: the tool's edits and the engine's own give scenes that load equal."""

import asyncio
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Json = dict[str, Any]

BUTTON = """[gd_scene format=3]

[sub_resource type="CircleShape2D" id="Circle_1"]
radius = 4.0

[node name="Button" type="Area2D" unique_id=10]

[node name="Form" type="CollisionShape2D" parent="." unique_id=11]
shape = SubResource("Circle_1")

[node name="Deep" type="Sprite2D" parent="Form" unique_id=12]
"""
PANEL = """[gd_scene format=3]

[ext_resource type="PackedScene" path="res://button.tscn" id="1_b"]

[node name="Panel" type="Node2D" unique_id=20]

[node name="B1" parent="." unique_id=21 instance=ExtResource("1_b")]
position = Vector2(3, 4)

[node name="B2" parent="." unique_id=23 instance=ExtResource("1_b")]

[node name="Last" type="Label" parent="." unique_id=22]
text = "hello"
"""
BOSS = """[gd_scene format=3]

[ext_resource type="PackedScene" path="res://panel.tscn" id="1_p"]

[node name="Boss" unique_id=30 instance=ExtResource("1_p")]
"""
FILES = {"button.tscn": BUTTON, "panel.tscn": PANEL, "boss.tscn": BOSS}
NODES = [".", "B1", "B1/Form", "B1/Form/Deep", "B2", "B2/Form", "B2/Form/Deep", "Last"]
SHAPES = ("B1/Form", "B2/Form")

# Carries out the same edits as an editor does: on the instantiated scene, saved afterwards.
REFERENCE = """
extends SceneTree

func _initialize() -> void:
	for job: Dictionary in JSON.parse_string(FileAccess.get_file_as_string("res://jobs.json")):
		var packed: PackedScene = ResourceLoader.load("res://" + job["scene"], "", ResourceLoader.CACHE_MODE_IGNORE)
		packed.take_over_path("res://" + job["scene"])
		var root := packed.instantiate(PackedScene.GEN_EDIT_STATE_MAIN)
		for edit: Dictionary in job["edits"]:
			apply(root, edit)
		var saved := PackedScene.new()
		saved.pack(root)
		ResourceSaver.save(saved, "res://" + job["output"])
		root.free()
	quit(0)

func editable(root: Node, node: Node) -> void:
	var owner := node.owner
	while owner != null and owner != root:
		root.set_editable_instance(owner, true)
		owner = owner.owner

func apply(root: Node, edit: Dictionary) -> void:
	var node := root.get_node(edit["node"])
	editable(root, node)
	match edit["kind"]:
		"set":
			node.set(edit["property"], str_to_var(edit["literal"]))
		"radius":
			# The resource of another scene is shared: the editor makes it unique first.
			node.shape = node.shape.duplicate()
			node.shape.radius = edit["value"]
		"group":
			node.add_to_group(edit["group"], true)
		"add":
			var made := Node2D.new()
			made.name = edit["name"]
			node.add_child(made)
			made.owner = root
		"connect":
			if not node.is_connected("renamed", Callable(root, "queue_free")):
				node.connect("renamed", Callable(root, "queue_free"), CONNECT_PERSIST)
"""

# Prints every stored property, group and connection of every node of two scenes.
COMPARE = """
extends SceneTree

func _initialize() -> void:
	for pair: Array in JSON.parse_string(FileAccess.get_file_as_string("res://pairs.json")):
		var shown := []
		for name: String in pair:
			var root: Node = ResourceLoader.load("res://" + name, "", ResourceLoader.CACHE_MODE_IGNORE).instantiate()
			shown.append(describe(root, root))
			root.free()
		print("@@" + JSON.stringify(shown))
	quit(0)

func describe(root: Node, node: Node) -> Dictionary:
	var values := {}
	for each in node.get_property_list():
		if each["usage"] & PROPERTY_USAGE_STORAGE and str(each["name"]) != "unique_name_in_owner":
			values[str(each["name"])] = written(node.get(each["name"]))
	var connections := []
	for each in node.get_signal_list():
		for one in node.get_signal_connection_list(each["name"]):
			if one["flags"] & CONNECT_PERSIST:
				var target: Callable = one["callable"]
				var path := root.get_path_to(target.get_object())
				connections.append([str(each["name"]), str(path), str(target.get_method())])
	var groups := node.get_groups().map(func(each: StringName) -> String: return str(each))
	groups.sort()
	return {
		"name": str(node.name), "class": node.get_class(), "values": values, "groups": groups,
		"connections": connections,
		"children": node.get_children().map(func(child: Node) -> Dictionary: return describe(root, child)),
	}

func written(value: Variant) -> String:
	if value is Resource and not value is Script:
		var parts := [value.get_class()]
		for each in value.get_property_list():
			if each["usage"] & PROPERTY_USAGE_STORAGE:
				parts.append(str(each["name"]) + "=" + written(value.get(each["name"])))
		return ";".join(parts)
	return var_to_str(value)
"""


async def run_script(engine: Path, project: Path, script: str, home: Path) -> str:
    path = home / "script.gd"
    path.write_text(script)
    command = [engine, "--headless", "--no-header", "--path", project, "--script", path]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120, env={"HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_files(project: Path) -> None:
    for name, text in FILES.items():
        (project / name).write_text(text)


# ---- reading ----


async def test_tree_shows_the_children_of_instances_and_of_the_base(engine_harness: Any) -> None:
    write_files(engine_harness.project)
    shown = await engine_harness.call_ok("get_node_tree", scenePath="boss.tscn")
    assert shown["nodeCount"] == 8
    form = shown["tree"]["children"][0]["children"][0]
    assert (form["path"], form["type"], form["definedIn"]) == ("B1/Form", "CollisionShape2D", "res://button.tscn")
    found = await engine_harness.call_ok(
        "godot_inspector_manager", action="query", scenePath="boss.tscn", className="Node2D"
    )
    assert found["total"] == 7


async def test_properties_that_no_file_mentions_have_the_engines_defaults(engine_harness: Any) -> None:
    write_files(engine_harness.project)

    async def get(node: str, name: str) -> Json:
        return await engine_harness.call_ok(
            "godot_inspector_manager", action="get_property", scenePath="boss.tscn", nodePath=node, property=name
        )

    assert (await get("B1", "position"))["value"] == {"$type": "Vector2", "x": 3, "y": 4}
    rotation = await get("B1", "rotation")
    assert (rotation["value"], rotation["default"]) == (0.0, True)
    assert (await get("B1/Form", "shape:radius"))["value"] == 4.0
    assert (await get("B1/Form", "shape:custom_solver_bias"))["default"] is True
    code = await engine_harness.error_code(
        "godot_inspector_manager", action="get_property", scenePath="boss.tscn", nodePath="B1", property="no_such"
    )
    assert code == "E_NOT_FOUND"


async def test_script_default_is_read_from_the_script(engine_harness: Any) -> None:
    await engine_harness.call_ok(
        "write_script", scriptPath="p.gd", content="extends Sprite2D\n@export var speed := 7.5\n"
    )
    await engine_harness.call_ok("attach_script", scenePath="main.tscn", nodePath="Player", scriptPath="p.gd")
    found = await engine_harness.call_ok(
        "godot_inspector_manager", action="get_property", scenePath="main.tscn", nodePath="Player", property="speed"
    )
    assert (found["value"], found["default"]) == (7.5, True)


# ---- writing ----


async def test_edit_of_an_inherited_node_is_an_override(engine_harness: Any) -> None:
    write_files(engine_harness.project)
    await engine_harness.call_ok(
        "edit_node", scenePath="boss.tscn", nodePath="B1/Form", properties={"shape:radius": 9, "disabled": True}
    )
    text = (engine_harness.project / "boss.tscn").read_text()
    assert '[node name="Form" parent="B1" index="0" unique_id=11]' in text
    assert '[editable path="B1"]' in text
    assert text.count("radius = 9.0") == 1
    for name in ("button.tscn", "panel.tscn"):
        assert (engine_harness.project / name).read_text() == FILES[name]


async def test_inherited_node_is_not_removed_renamed_or_moved(engine_harness: Any) -> None:
    write_files(engine_harness.project)
    calls: list[tuple[str, Json]] = [
        ("remove_node", {}),
        ("rename_node", {"newName": "Other"}),
        ("move_node", {"newParentPath": "Last"}),
    ]
    for tool, arguments in calls:
        envelope = await engine_harness.call(tool, scenePath="boss.tscn", nodePath="B1/Form", **arguments)
        assert envelope["error"]["code"] == "E_UNSUPPORTED", tool
        assert "res://button.tscn" in envelope["summary"]
    assert (engine_harness.project / "boss.tscn").read_text() == BOSS


async def test_duplicate_of_a_foreign_node_is_a_node_of_this_scene(engine_harness: Any) -> None:
    write_files(engine_harness.project)
    made = await engine_harness.call_ok("duplicate_node", scenePath="boss.tscn", nodePath="B1/Form", newName="Copy")
    assert made["nodePath"] == "B1/Copy"
    tree = await engine_harness.call_ok("get_node_tree", scenePath="boss.tscn", nodePath="B1")
    assert [each["name"] for each in tree["tree"]["children"]] == ["Form", "Copy"]
    found = await engine_harness.call_ok(
        "godot_inspector_manager",
        action="get_property",
        scenePath="boss.tscn",
        nodePath="B1/Copy",
        property="shape:radius",
    )
    assert found["value"] == 4.0


async def test_connection_to_a_missing_method_succeeds_with_a_warning(engine_harness: Any) -> None:
    write_files(engine_harness.project)
    ends = {"fromNodePath": "B1", "signal": "body_entered", "toNodePath": "."}
    envelope = await engine_harness.call("connect_signal", scenePath="boss.tscn", **ends, method="_on_hit")
    assert envelope["ok"]
    assert "_on_hit" in envelope["warnings"][0]
    envelope = await engine_harness.call("connect_signal", scenePath="boss.tscn", **ends, method="hide")
    assert "warnings" not in envelope


async def test_dynamic_properties_are_written(engine_harness: Any) -> None:
    project = engine_harness.project
    (project / "wave.gdshader").write_text(
        "shader_type canvas_item;\nuniform float speed = 1.0;\nuniform vec4 tint : source_color;\n"
    )
    material = {"$resource": "ShaderMaterial", "props": {"shader": "res://wave.gdshader"}}
    scene = {"scenePath": "main.tscn"}
    await engine_harness.call_ok("edit_node", **scene, nodePath="Player", properties={"material": material})
    await engine_harness.call_ok(
        "edit_node", **scene, nodePath="Player", properties={"material:shader_parameter/speed": 3.5}
    )
    assert "shader_parameter/speed = 3.5" in (project / "main.tscn").read_text()
    await engine_harness.call_ok(
        "add_node",
        **scene,
        nodeType="Label",
        nodeName="Title",
        properties={"theme_override_font_sizes/font_size": 32, "theme_override_colors/font_color": "red"},
    )
    assert "theme_override_font_sizes/font_size = 32" in (project / "main.tscn").read_text()
    await engine_harness.call_ok("add_node", **scene, nodeType="AnimationPlayer", nodeName="Moves")
    library = {"$resource": "AnimationLibrary"}
    await engine_harness.call_ok("edit_node", **scene, nodePath="Moves", properties={"libraries/walks": library})
    assert "libraries/walks = SubResource(" in (project / "main.tscn").read_text()
    code = await engine_harness.error_code("edit_node", **scene, nodePath="Player", properties={"no/such": 1})
    assert code == "E_SCHEMA_VALIDATION"


VALUES: list[Any] = [
    {"$type": "AABB", "x": 1, "y": 2, "z": 3, "width": 4, "height": 5, "depth": 6},
    {"$type": "Projection", "values": [float(number) for number in range(16)]},
    {"$type": "Basis", "values": [1, 0, 0, 0, 1, 0, 0, 0, 1]},
    {"$type": "Plane", "x": 0, "y": 1, "z": 0, "d": 5},
    {"$type": "Transform2D", "values": [1, 0, 0, 1, 5, 6]},
    {"$type": "Transform3D", "values": [1, 0, 0, 0, 1, 0, 0, 0, 1, 7, 8, 9]},
    {"$type": "PackedByteArray", "values": [1, 2, 3]},
    {"$type": "PackedInt64Array", "values": [1, 2**40]},
    {"$type": "PackedVector3Array", "values": [1, 2, 3, 4, 5, 6]},
    {"$type": "PackedColorArray", "values": [1, 0, 0, 1]},
    {"$type": "PackedStringArray", "values": ["a", 'b"']},
    {"$type": "Array", "of": "int", "values": [1, 2]},
    {"$type": "Dictionary", "of": ["String", "int"], "entries": [["a", 1]]},
    {"$type": "Dictionary", "entries": [[2, "x"], [{"$type": "StringName", "name": "k"}, None]]},
    {"$type": "NodePath", "path": "../A:position"},
    {"$type": "StringName", "name": "run"},
    {"$type": "Vector4i", "x": 1, "y": 2, "z": 3, "w": 4},
    {"nested": [1, {"$type": "Color", "r": 1, "g": 0.5, "b": 0, "a": 1}]},
]


async def test_every_variant_type_is_stored_by_the_engine_and_read_back(engine_harness: Any) -> None:
    properties = {f"metadata/v{index}": value for index, value in enumerate(VALUES)}
    await engine_harness.call_ok("edit_node", scenePath="main.tscn", nodePath="Player", properties=properties)
    for index, value in enumerate(VALUES):
        found = await engine_harness.call_ok(
            "godot_inspector_manager",
            action="get_property",
            scenePath="main.tscn",
            nodePath="Player",
            property=f"metadata/v{index}",
        )
        assert found["value"] == value


# ---- other forms of scenes ----


async def test_binary_scene_is_read_through_the_engine_and_not_written(engine_harness: Any, engine: Path) -> None:
    write_files(engine_harness.project)
    home = engine_harness.files
    convert = 'extends SceneTree\nfunc _initialize() -> void:\n\tResourceSaver.save(load("res://panel.tscn"), "res://panel.scn")\n\tquit(0)\n'
    await run_script(engine, engine_harness.project, convert, home)
    shown = await engine_harness.call_ok("get_node_tree", scenePath="panel.scn")
    assert shown["nodeCount"] == 8
    assert (
        await engine_harness.error_code("edit_node", scenePath="panel.scn", nodePath="B1", properties={"rotation": 1})
        == "E_UNSUPPORTED"
    )
    # An instance of a binary scene is resolved as well.
    await engine_harness.call_ok("instance_scene", scenePath="main.tscn", instancePath="panel.scn", instanceName="P")
    await engine_harness.call_ok("edit_node", scenePath="main.tscn", nodePath="P/Last", properties={"text": "bye"})
    assert 'text = "bye"' in (engine_harness.project / "main.tscn").read_text()


async def test_scene_of_godot_3_is_read_and_not_written(harness: Any) -> None:
    old = '[gd_scene format=2]\n\n[node name="Old" type="Node2D"]\n\n[node name="A" type="Sprite" parent="."]\n'
    (harness.project / "old.tscn").write_text(old)
    assert (await harness.call_ok("get_node_tree", scenePath="old.tscn"))["nodeCount"] == 2
    envelope = await harness.call("edit_node", scenePath="old.tscn", nodePath="A", properties={"visible": False})
    assert envelope["error"]["code"] == "E_UNSUPPORTED"
    assert "convert_3to4" in envelope["error"]["suggestedFix"]


# ---- the same edits by the tool and by the engine ----

LITERALS: dict[str, tuple[str, Any]] = {
    "rotation": ("1.25", 1.25),
    "visible": ("false", False),
    "z_index": ("7", 7),
    "modulate": ("Color(1, 0.5, 0, 1)", {"$type": "Color", "r": 1, "g": 0.5, "b": 0, "a": 1}),
    "process_mode": ("3", 3),
    "metadata/kind": ('[1, &"x"]', {"$literal": '[1, &"x"]'}),
}
EDIT = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("set"), "node": st.sampled_from(NODES), "property": st.sampled_from(sorted(LITERALS))}
    ),
    st.fixed_dictionaries({"kind": st.just("radius"), "node": st.sampled_from(SHAPES), "value": st.integers(1, 50)}),
    st.fixed_dictionaries(
        {"kind": st.just("group"), "node": st.sampled_from(NODES), "group": st.sampled_from(["a", "b"])}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("add"), "node": st.sampled_from(NODES), "name": st.from_regex(r"N[0-9]{6}", fullmatch=True)}
    ),
    st.fixed_dictionaries({"kind": st.just("connect"), "node": st.sampled_from(NODES)}),
)


async def apply_by_tool(harness: Any, scene: str, edit: Json) -> None:
    target: Json = {"scenePath": scene, "nodePath": edit["node"]}
    match edit["kind"]:
        case "set":
            if edit["node"] == "Last" and edit["property"] == "rotation":
                target["nodePath"] = edit["node"] = "B1"
            properties = {edit["property"]: LITERALS[edit["property"]][1]}
            await harness.call_ok("edit_node", **target, properties=properties)
        case "radius":
            await harness.call_ok("edit_node", **target, properties={"shape:radius": edit["value"]})
        case "group":
            await harness.call_ok("manage_groups", **target, action="add", groups=[edit["group"]])
        case "add":
            await harness.call(
                "add_node", scenePath=scene, parentNodePath=edit["node"], nodeType="Node2D", nodeName=edit["name"]
            )
        case _:
            await harness.call(
                "connect_signal",
                scenePath=scene,
                fromNodePath=edit["node"],
                signal="renamed",
                toNodePath=".",
                method="queue_free",
            )


def draw_jobs(count: int, size: int) -> list[list[Json]]:
    """Draw edits with Hypothesis: `count` lists of `size` edits, the same on every run."""
    drawn: list[list[Json]] = []

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=tuple(HealthCheck))  # pyright: ignore[reportArgumentType]
    @given(st.lists(EDIT, min_size=size, max_size=size, unique_by=lambda edit: json.dumps(edit, sort_keys=True)))
    def draw(edits: list[Json]) -> None:
        if len(drawn) < count:
            drawn.append(json.loads(json.dumps(edits)))

    draw()
    return drawn


def flatten(node: Json, path: str = "") -> dict[str, Any]:
    """Return path:property -> value of a described tree."""
    path = f"{path}/{node['name']}"
    flat = {f"{path}:{name}": value for name, value in node["values"].items()}
    flat |= {f"{path}:{name}": node[name] for name in ("class", "groups", "connections")}
    for child in node["children"]:
        flat |= flatten(child, path)
    return flat | {f"{path}:children": [child["name"] for child in node["children"]]}


@pytest.mark.parametrize("scene", ["panel.tscn", "boss.tscn"])
async def test_a_hundred_random_edits_load_like_the_engines_own(engine_harness: Any, engine: Path, scene: str) -> None:
    """A hundred edits of each scene: instanced nodes in one, inherited and nested instanced ones in the other."""
    write_files(engine_harness.project)
    original = FILES[scene]
    home = engine_harness.files
    jobs = draw_jobs(10, 10)
    assert sum(map(len, jobs)) == 100
    random.Random(3).shuffle(jobs)
    described: list[Json] = []
    for number, edits in enumerate(jobs):
        name = f"tool{number}.tscn"
        (engine_harness.project / name).write_text(original)
        for edit in edits:
            await apply_by_tool(engine_harness, name, edit)
            if edit["kind"] == "set":
                edit["literal"] = LITERALS[edit["property"]][0]
        described.append({"scene": scene, "output": f"engine{number}.tscn", "edits": edits})
    (engine_harness.project / "jobs.json").write_text(json.dumps(described))
    await run_script(engine, engine_harness.project, REFERENCE, home)
    pairs = [[f"tool{number}.tscn", f"engine{number}.tscn"] for number in range(len(jobs))]
    (engine_harness.project / "pairs.json").write_text(json.dumps(pairs))
    output = await run_script(engine, engine_harness.project, COMPARE, home)
    shown = [json.loads(line[2:]) for line in output.splitlines() if line.startswith("@@")]
    assert len(shown) == len(jobs)
    for number, (by_tool, by_engine) in enumerate(shown):
        assert flatten(by_tool) == flatten(by_engine), jobs[number]
