"""Scenes resolved to one tree: instances, inheritance, overrides and editable children."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from backends.godot.text import node_edits
from backends.godot.text.scene import Scene
from backends.godot.text.tree import SceneTree
from gateway.errors import Fault, Kind

BUTTON = """[gd_scene format=3]

[sub_resource type="CircleShape2D" id="Circle_1"]
radius = 4.0

[node name="Button" type="Area2D" unique_id=10 groups=["buttons"]]

[node name="Form" type="CollisionShape2D" parent="." unique_id=11]
shape = SubResource("Circle_1")

[node name="Deep" type="Node2D" parent="Form" unique_id=12]

[connection signal="ready" from="Form" to="." method="hide"]
"""
PANEL = """[gd_scene format=3]

[ext_resource type="PackedScene" path="res://button.tscn" id="1_b"]

[node name="Panel" type="Node2D" unique_id=20]

[node name="B1" parent="." unique_id=21 instance=ExtResource("1_b")]

[node name="Last" type="Node2D" parent="." unique_id=22]
"""
BIG_PANEL = """[gd_scene format=3]

[ext_resource type="PackedScene" path="res://panel.tscn" id="1_p"]

[node name="BigPanel" unique_id=30 instance=ExtResource("1_p")]
"""
LIBRARY = {"res://button.tscn": Scene(BUTTON), "res://panel.tscn": Scene(PANEL)}


def resolve(text: str, file: str = "res://main.tscn") -> SceneTree:
    return SceneTree(file, Scene(text), LIBRARY)


def paths(tree: SceneTree) -> list[str]:
    return [node.path for node in tree.walk()]


def test_children_of_instances_and_of_the_base_scene_are_nodes_of_the_tree() -> None:
    assert paths(resolve(PANEL)) == [".", "B1", "B1/Form", "B1/Form/Deep", "Last"]
    tree = resolve(BIG_PANEL)
    assert paths(tree) == [".", "B1", "B1/Form", "B1/Form/Deep", "Last"]
    assert tree.root.name == "BigPanel"
    assert (tree.root.type, tree.find("B1").type, tree.find("B1/Form").type) == ("Node2D", "Area2D", "CollisionShape2D")
    assert tree.find("B1").groups() == ["buttons"]


def test_override_is_written_as_the_engine_writes_it() -> None:
    tree = resolve(PANEL)
    after = tree.with_section(tree.find("B1/Form")).with_properties("B1/Form", {"disabled": "true"})
    expected = '\n\n[node name="Form" parent="B1" index="0" unique_id=11]\ndisabled = true'
    assert after.text == (
        PANEL.replace('instance=ExtResource("1_b")]', f'instance=ExtResource("1_b")]{expected}').rstrip("\n")
        + '\n\n[editable path="B1"]\n'
    )
    again = resolve(after.text)
    assert again.find("B1/Form").stored("disabled")[0] == "true"  # type: ignore[index]
    assert again.with_section(again.find("B1/Form")).text == after.text


def test_overrides_keep_the_order_of_the_tree() -> None:
    tree = resolve(PANEL)
    scene = tree.with_section(tree.find("B1/Form/Deep"))
    tree = resolve(scene.text)
    scene = tree.with_section(tree.find("B1/Form"))
    assert [node.path for node in scene.nodes] == [".", "B1", "B1/Form", "B1/Form/Deep", "Last"]
    assert scene.text.count("[editable") == 1


def test_inherited_node_needs_no_editable_section_but_a_node_of_its_instance_does() -> None:
    tree = resolve(BIG_PANEL)
    assert "[editable" not in tree.with_section(tree.find("Last")).text
    assert '[editable path="B1"]' in tree.with_section(tree.find("B1/Form")).text


def test_nested_instances_are_all_declared_editable() -> None:
    outer = PANEL.replace("button", "panel").replace("B1", "P")
    tree = resolve(outer)
    assert "P/B1/Form" in paths(tree)
    text = tree.with_section(tree.find("P/B1/Form")).text
    assert text.endswith('[editable path="P"]\n[editable path="P/B1"]\n')


def test_new_child_of_a_foreign_node_has_its_index() -> None:
    tree = resolve(PANEL)
    after = tree.with_child(tree.find("B1/Form"), "New", 'type="Node"', {})
    assert 'parent="B1/Form" index="1"' in after.text
    assert '[editable path="B1"]' in after.text
    assert paths(resolve(after.text)) == [".", "B1", "B1/Form", "B1/Form/Deep", "B1/Form/New", "Last"]
    below_instance = resolve(PANEL).with_child(resolve(PANEL).find("B1"), "New", 'type="Node"', {})
    assert "[editable" not in below_instance.text


def test_foreign_node_cannot_be_removed_even_when_it_is_overridden() -> None:
    tree = resolve(PANEL)
    tree = resolve(tree.with_section(tree.find("B1/Form")).text)
    for path in ("B1/Form", "B1/Form/Deep"):
        with pytest.raises(Fault) as caught:
            tree.check_own(tree.find(path), "removed")
        assert caught.value.kind is Kind.UNSUPPORTED
        assert caught.value.details["definedIn"] == "res://button.tscn"
    tree.check_own(tree.find("B1"), "removed")


def test_removing_an_instance_removes_its_overrides() -> None:
    tree = resolve(PANEL)
    overridden = tree.with_section(tree.find("B1/Form"))
    after, _ = node_edits.remove(overridden, "B1")
    assert paths(resolve(after.text)) == [".", "Last"]
    assert "[editable" not in after.text


def test_values_show_the_resource_that_another_scene_stores() -> None:
    tree = resolve(BIG_PANEL)
    literal, layer = tree.find("B1/Form").stored("shape")  # type: ignore[misc]
    assert layer.file == "res://button.tscn"
    assert tree.value(literal, layer) == {"$resource": "CircleShape2D", "id": "Circle_1", "props": {"radius": 4.0}}


def test_connections_of_other_scenes_are_listed_as_inherited() -> None:
    found = resolve(PANEL).connections()
    assert found == [
        {"signal": "ready", "from": "B1/Form", "to": "B1", "method": "hide", "inherited": "res://button.tscn"}
    ]


def test_scene_that_cannot_be_read_is_unresolved_and_its_overrides_stay_addressable() -> None:
    text = PANEL.replace("button.tscn", "model.glb").replace(
        '[node name="Last"', '[node name="Mesh" parent="B1" index="0"]\n\n[node name="Last"'
    )
    tree = resolve(text)
    assert tree.entry(tree.find("B1"))["unresolved"] is True
    assert tree.find("B1/Mesh").path == "B1/Mesh"


def test_override_of_a_node_that_is_gone_is_reported() -> None:
    tree = resolve(PANEL.replace('[node name="Last"', '[node name="Gone" parent="B1" index="0"]\n\n[node name="Last"'))
    assert paths(tree) == [".", "B1", "B1/Form", "B1/Form/Deep", "Last"]
    assert "B1/Gone" in tree.warnings[0]


def test_view_is_bounded_and_counts_what_it_leaves_out() -> None:
    tree = resolve(PANEL)
    shown, count, left_out = tree.view(tree.root, max_depth=None, max_nodes=2)
    assert (count, left_out) == (2, 3)
    assert shown["childCount"] == 2
    shown, count, left_out = tree.view(tree.root, max_depth=2, max_nodes=100)
    assert (count, left_out) == (3, 2)
    assert [each["name"] for each in shown["children"]] == ["B1", "Last"]
    shown, count, left_out = tree.view(tree.root, max_depth=2, max_nodes=100, offset=1)
    assert [each["name"] for each in shown["children"]] == ["Last"]


def test_scene_that_instances_itself_ends() -> None:
    loop = Scene(PANEL.replace("button", "loop").replace("B1", "L"))
    tree = SceneTree("res://loop.tscn", loop, {"res://loop.tscn": loop})
    assert len(paths(tree)) < 400


def test_scene_of_godot_3_is_resolved() -> None:
    text = """[gd_scene load_steps=2 format=2]

[ext_resource path="res://button.tscn" type="PackedScene" id=1]

[node name="Old" type="Node2D"]

[node name="B" parent="." instance=ExtResource( 1 )]
"""
    assert paths(resolve(text)) == [".", "B", "B/Form", "B/Form/Deep"]


def test_edit_of_ten_thousand_nodes_changes_one_line_and_costs_little_more_than_parsing() -> None:
    nodes = "".join(
        f'\n[node name="N{n}" type="Node2D" parent="."]\nposition = Vector2({n}, 2)\n' for n in range(10_000)
    )
    text = f'[gd_scene format=3]\n\n[node name="Main" type="Node2D"]\n{nodes}'
    values = {"position": "Vector2(9, 9)"}

    def by_text() -> Scene:
        return Scene(Scene(text).with_properties("N5000", values).text)

    def by_tree() -> Scene:
        tree = resolve(text)
        return Scene(tree.with_section(tree.find("N5000")).with_properties("N5000", values).text)

    after = by_tree().text.splitlines()
    before = text.splitlines()
    assert len(after) == len(before)
    assert sum(new != old for new, old in zip(after, before, strict=True)) == 1
    rounds = [(cpu_seconds(by_tree), cpu_seconds(by_text)) for _ in range(3)]
    tree_seconds, text_seconds = map(min, zip(*rounds, strict=True))
    assert tree_seconds < 2 * text_seconds
    shown, count, left_out = view(text)
    assert (count, left_out, len(shown["children"])) == (500, 9501, 499)


def view(text: str) -> tuple[dict[str, Any], int, int]:
    tree = resolve(text)
    return tree.view(tree.root, max_depth=None, max_nodes=500)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
