"""Conversion of JSON values to Godot literals without an engine."""

import json
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


LITERALS = r"""true
1
1.5
inf
1e+300
"a \"quoted\" word"
&"name"
NodePath("a/b:c")
Vector2(1, 2.5)
Vector2i(1, 2)
Vector3(1, 2, 3)
Vector3i(1, 2, 3)
Vector4(1, 2, 3, 4)
Vector4i(1, 2, 3, 4)
Rect2(1, 2, 3, 4)
Rect2i(1, 2, 3, 4)
Transform2D(1, 0, 0, 1, 0, 0)
Plane(1, 2, 3, 4)
Quaternion(0, 0, 0, 1)
AABB(1, 2, 3, 4, 5, 6)
Basis(1, 0, 0, 0, 1, 0, 0, 0, 1)
Transform3D(1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0)
Projection(1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
Color(1, 0.5, 0, 1)
Vector2(inf, 0)
[1, "a", &"b"]
{}
Array[int]([1, 2])
Array[Gradient]([SubResource("Gradient_5wx10")])
Array[ExtResource("1_a")]([])
PackedByteArray("AQID")
PackedByteArray(1, 2)
PackedInt32Array(1, 2)
PackedInt64Array(1, 2)
PackedFloat32Array(1, 2.5)
PackedFloat64Array(1, 2.5)
PackedStringArray("a", "b")
PackedVector2Array(1, 2)
PackedVector3Array(1, 2, 3)
PackedVector4Array(1, 2, 3, 4)
PackedColorArray(1, 0, 0, 1)
ExtResource("1_a")
Callable()
RID()""".splitlines()


@pytest.mark.parametrize(
    "literal", [*LITERALS, '{\n2: 3,\n"a": 1,\n&"x": null\n}', 'Dictionary[String, int]({\n"a": 1\n})']
)
def test_every_type_survives_the_way_to_json_and_back(literal: str) -> None:
    value = from_literal(literal)
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert to_literal(value) == literal


def test_literals_are_read_as_plain_json_where_json_has_the_type() -> None:
    assert [from_literal(each) for each in ('"a"', "1", "2.5", "true", "null", '{\n"a": [1]\n}')] == [
        "a", 1, 2.5, True, None, {"a": [1]},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["Vector2(1, 2) evil", '"a" "b"', "]", "", "Vector2(", "[1"])
def test_literal_of_a_caller_is_exactly_one_value(text: str) -> None:
    with pytest.raises(Fault):
        to_literal({"$literal": text})
