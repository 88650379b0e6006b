"""Conversion of JSON values to Godot literals without an engine."""

from typing import Any

import pytest

from backends.godot.text.literal import from_literal, to_literal
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
    assert to_literal(value) == written


@pytest.mark.parametrize("value", [{"$type": "Mesh"}, {"$resource": "BoxMesh"}, {"$type": "Vector2", "x": "1"}])
def test_values_that_require_an_engine_are_rejected(value: Any) -> None:
    with pytest.raises(Fault):
        to_literal(value)


def test_string_cannot_terminate_its_literal() -> None:
    assert to_literal('x"\n[node name="evil"]') == '"x\\"\n[node name=\\"evil\\"]"'


def test_simple_literals_are_converted_to_json() -> None:
    assert [from_literal(each) for each in ('"a"', "1", "2.5", "true", "Vector2(1, 2)")] == [
        "a",
        1,
        2.5,
        True,
        "Vector2(1, 2)",
    ]
