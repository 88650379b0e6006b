"""Values without an engine: what has one meaning is written, what has none is refused."""

from typing import Any

import pytest

from backends.godot.text.literal import literal, plain
from gateway.errors import Fault


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (2.5, "2.5"),
        ('say "hi"', '"say \\"hi\\""'),
        ([1, "a"], '[1, "a"]'),
        ({}, "{}"),
        ({"a": 1}, '{\n"a": 1\n}'),
        ({"$type": "Vector2", "x": 1, "y": 2}, "Vector2(1, 2)"),
        ({"$type": "Color", "r": 1}, "Color(1, 0, 0, 1)"),
        ({"$type": "NodePath", "path": "../A"}, 'NodePath("../A")'),
        ({"$type": "StringName", "name": "run"}, '&"run"'),
        ("Vector3(1, 2, 3)", "Vector3(1, 2, 3)"),
        ('NodePath("A/B")', 'NodePath("A/B")'),
        ("Vector3(evil())", '"Vector3(evil())"'),
    ],
)
def test_values_are_written_as_godot_writes_them(value: Any, written: str) -> None:
    assert literal(value) == written


@pytest.mark.parametrize("value", [{"$type": "Mesh"}, {"$resource": "BoxMesh"}, {"$type": "Vector2", "x": "1"}])
def test_what_only_an_engine_can_make_is_refused(value: Any) -> None:
    with pytest.raises(Fault):
        literal(value)


def test_a_text_cannot_end_its_own_literal() -> None:
    assert literal('x"\n[node name="evil"]') == '"x\\"\n[node name=\\"evil\\"]"'


def test_simple_literals_are_read_back() -> None:
    assert [plain(each) for each in ('"a"', "1", "2.5", "true", "Vector2(1, 2)")] == [
        "a",
        1,
        2.5,
        True,
        "Vector2(1, 2)",
    ]
