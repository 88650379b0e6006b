"""Span-based scene edits: only the requested part changes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.godot.text import node_edits
from backends.godot.text.scene import Scene, validate_name
from backends.godot.text.tree import SceneTree
from gateway.errors import Fault, Kind
from tests.backends.godot.conftest import SCENE

NAMES = st.from_regex(r"[A-Z][a-z]{0,5}[0-9]?", fullmatch=True)


def paths(scene: Scene) -> list[str]:
    return [node.path for node in scene.nodes]


def with_node(scene: Scene, parent: str, name: str, values: dict[str, str] | None = None) -> Scene:
    tree = SceneTree("res://main.tscn", scene, {})
    return tree.with_child(tree.find(parent), name, 'type="Node2D"', values or {})


def test_nodes_are_found_by_every_spelling_of_the_root() -> None:
    scene = Scene(SCENE)
    for node_path in (
        "Player/Sword",
        "./Player/Sword",
        "root/Player/Sword",
        "Main/Player/Sword",
        "/root/Player/Sword",
    ):
        assert scene.find(node_path).path == "Player/Sword"
    for root in (".", "root", "Main", ""):
        assert scene.find(root).path == "."
    with pytest.raises(Fault) as caught:
        scene.find("Player/Shield")
    assert caught.value.kind is Kind.NOT_FOUND


def test_existing_property_is_replaced_in_place() -> None:
    after = Scene(SCENE).with_properties("Player", {"position": "Vector2(7, 8)"})
    assert after.text == SCENE.replace("Vector2(1, 2)", "Vector2(7, 8)")


def test_new_property_is_added_after_the_last_property_of_the_node() -> None:
    after = Scene(SCENE).with_properties("Player", {"rotation": "1.5"})
    assert after.text == SCENE.replace('"a": NodePath("b")\n}]', '"a": NodePath("b")\n}]\nrotation = 1.5')


def test_removing_an_added_property_restores_the_text() -> None:
    changed = Scene(SCENE).with_properties("Player/Sword", {"visible": "false"})
    assert changed.without_property("Player/Sword", "visible").text.split() == SCENE.split()


def test_new_node_is_added_after_the_last_descendant_of_its_parent() -> None:
    after = with_node(Scene(SCENE), "Player", "Shield", {"visible": "false"})
    assert paths(after) == [".", "Player", "Player/Sword", "Player/Shield"]
    assert without_new_ids(after.text).replace(
        '\n\n[node name="Shield" type="Node2D" parent="Player"]\nvisible = false', ""
    ) == without_new_ids(SCENE)


def without_new_ids(text: str) -> str:
    return re.sub(r" unique_id=\d+", "", text)


def test_new_node_gets_a_unique_id_only_if_other_nodes_have_one() -> None:
    assert "unique_id" in with_node(Scene(SCENE), ".", "A").text.split('name="A"')[1].split("]")[0]
    plain = without_new_ids(SCENE)
    assert "unique_id" not in with_node(Scene(plain), ".", "A").text


def test_resource_used_twice_has_one_entry() -> None:
    scene, first = Scene(SCENE).with_external("Script", "res://a.gd")
    again, second = scene.with_external("Script", "res://a.gd")
    assert first == second
    assert again.text == scene.text
    other, third = scene.with_external("Texture2D", "res://b.png", "uid://abc")
    assert third != first
    assert [section.string("path") for section in other.external_resources()] == ["res://a.gd", "res://b.png"]
    assert scene.resource_path(first) == "res://a.gd"


def test_removing_a_node_removes_its_children_and_connections_but_no_comments() -> None:
    after, count = node_edits.remove(Scene(SCENE), "Player")
    assert count == 2
    assert paths(after) == ["."]
    assert after.connections() == []
    assert "; a comment of the author's" in after.text


def test_renaming_a_node_updates_children_and_connections() -> None:
    after = node_edits.rename(Scene(SCENE), "Player", "Hero")
    assert after.text == (
        SCENE.replace('name="Player"', 'name="Hero"')
        .replace('parent="Player"', 'parent="Hero"')
        .replace('from="Player"', 'from="Hero"')
    )


def test_renaming_the_root_changes_only_its_name() -> None:
    assert node_edits.rename(Scene(SCENE), ".", "Top").text == SCENE.replace('name="Main"', 'name="Top"')


def test_node_moved_to_another_parent_and_back_keeps_its_properties() -> None:
    scene = Scene(SCENE)
    after = node_edits.reparent(scene, "Player/Sword", ".")
    assert sorted(paths(after)) == [".", "Player", "Sword"]
    back = node_edits.reparent(after, "Sword", "Player")
    assert sorted(paths(back)) == sorted(paths(scene))
    assert back.find("Player").section.property("metadata/keep").value == (  # type: ignore[union-attr]
        scene.find("Player").section.property("metadata/keep").value  # type: ignore[union-attr]
    )


def test_node_cannot_move_below_itself_or_get_the_name_of_a_sibling() -> None:
    scene = Scene(SCENE)
    with pytest.raises(Fault, match="below itself"):
        node_edits.reparent(scene, "Player", "Player/Sword")
    with pytest.raises(Fault, match="already"):
        with_node(scene, "Player", "Sword")


def test_index_sets_the_position_among_siblings() -> None:
    scene = Scene(SCENE)
    for name in ("A", "B"):
        scene = with_node(scene, ".", name)
    assert [node.name for node in node_edits.reparent(scene, "B", ".", 0).children(".")] == ["B", "Player", "A"]
    assert [node.name for node in node_edits.reparent(scene, "Player", ".", 1).children(".")] == ["A", "Player", "B"]


def test_copy_has_the_properties_but_not_the_unique_id() -> None:
    after, path = node_edits.duplicate(Scene(SCENE), "Player", "Player2")
    assert path == "Player2"
    assert paths(after)[-2:] == ["Player2", "Player2/Sword"]
    assert after.text.count("unique_id=1335629582") == 1
    assert after.text.count("Array[int]([1, 2])") == 2


def test_connection_is_added_once_and_can_be_removed() -> None:
    scene = Scene(SCENE)
    after = node_edits.connect(scene, "Player/Sword", "draw", ".", "hide", 3)
    assert {"signal": "draw", "from": "Player/Sword", "to": ".", "method": "hide"} in after.connections()
    with pytest.raises(Fault, match="already"):
        node_edits.connect(after, "Player/Sword", "draw", ".", "hide", None)
    assert node_edits.disconnect(after, "Player/Sword", "draw", ".", "hide").text == SCENE


def test_setting_empty_groups_removes_the_attribute() -> None:
    scene = Scene(SCENE)
    both = node_edits.set_groups(scene, "Player", ["heroes", 'odd "one"'])
    assert both.groups(both.find("Player")) == ["heroes", 'odd "one"']
    none = node_edits.set_groups(both, "Player", [])
    assert none.text == SCENE.replace(' groups=["heroes"]', "")


@pytest.mark.parametrize("name", ["", "a/b", "a.b", 'a"b', "a:b", "a@b", "a%b", "a\nb"])
def test_names_that_the_engine_would_change_are_rejected(name: str) -> None:
    with pytest.raises(Fault):
        validate_name(name)


@settings(max_examples=40, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.data())
def test_adding_and_removing_any_nodes_restores_the_text(names: list[str], data: st.DataObject) -> None:
    scene = Scene(SCENE)
    value = scene.find("Player").section.property("metadata/keep").value  # type: ignore[union-attr]
    for name in names:
        parent = data.draw(st.sampled_from(paths(scene)))
        if name in {node.name for node in scene.children(parent)}:
            continue
        scene = with_node(scene, parent, name, {"visible": "false"})
    added = [path for path in paths(scene) if path not in (".", "Player", "Player/Sword")]
    for path in sorted(added, key=len, reverse=True):
        scene, _ = node_edits.remove(scene, path)
    assert scene.text == SCENE
    assert scene.find("Player").section.property("metadata/keep").value == value  # type: ignore[union-attr]
