"""Flattened schemas: no combinators at the root, never narrower than the exact schema, rules in the description."""

from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.catalogue.flatten import flatten

REMOVED = {"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas"}


def form(action: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"action": {"type": "string", "const": action}, **properties},
        "required": ["action", *properties],
        "additionalProperties": False,
    }


def test_schema_without_combinators_at_the_root_is_returned_unchanged() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert flatten(schema) is schema


def test_tagged_forms_become_one_object_with_the_tag_as_an_enum() -> None:
    schema = {
        "type": "object",
        "description": "Works on scenes.",
        "oneOf": [form("open", path={"type": "string"}), form("move", path={"type": "string"}, to={"type": "integer"})],
    }
    flat = flatten(schema)
    assert flat["properties"] == {
        "action": {"type": "string", "enum": ["open", "move"]},
        "path": {"type": "string"},
        "to": {"type": "integer"},
    }
    assert flat["required"] == ["action", "path"]
    assert flat["additionalProperties"] is False
    assert flat["type"] == "object"
    assert flat["description"] == ("Works on scenes.\n\nExactly one of: action=open, path | action=move, path and to.")


def test_conflicting_definitions_become_a_choice_inside_the_property() -> None:
    flat = flatten({"anyOf": [form("a", v={"type": "string"}), form("b", v={"type": "integer"})]})
    assert flat["properties"]["v"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


def test_definitions_that_differ_only_in_annotations_are_merged() -> None:
    one, other = {"type": "string", "description": "x"}, {"type": "string", "description": "y"}
    assert flatten({"anyOf": [form("a", v=one), form("b", v=other)]})["properties"]["v"] == one


def test_alternative_required_properties_are_described_and_not_required() -> None:
    schema = {
        "type": "object",
        "properties": {"scriptPath": {"type": "string"}, "scriptId": {"type": "string"}, "source": {}},
        "required": ["source"],
        "anyOf": [{"required": ["scriptPath"]}, {"required": ["scriptId"]}],
        "additionalProperties": False,
    }
    flat = flatten(schema)
    assert flat["required"] == ["source"]
    assert flat["properties"] == schema["properties"]
    assert flat["additionalProperties"] is False
    assert flat["description"] == "At least one of: scriptPath | scriptId."


def test_all_of_combines_its_parts() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"minimum": 1}}, "required": ["b"]}],
        "$defs": {"base": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}},
        "unevaluatedProperties": False,
    }
    flat = flatten(schema)
    assert flat["properties"]["a"] == {"type": "string"}
    assert flat["properties"]["b"] == {"type": "integer", "minimum": 1}
    assert flat["required"] == ["a", "b"]
    assert flat["additionalProperties"] is False
    assert flat["$defs"] is schema["$defs"]


def test_property_missing_from_an_open_form_accepts_any_value() -> None:
    schema = {"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}]}
    assert flatten(schema)["properties"]["a"] == {"anyOf": [{"type": "string"}, {}]}


@pytest.mark.parametrize(
    ("rule", "description"),
    [
        (
            {"if": {"properties": {"kind": {"const": "file"}}, "required": ["kind"]}, "then": {"required": ["path"]}},
            "If kind=file: path.",
        ),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, "With a: b."),
        ({"dependencies": {"a": ["b", "c"]}}, "With a: b and c."),
        ({"not": {"required": ["a", "b"]}}, "Not allowed: a and b."),
    ],
)
def test_conditions_are_removed_from_the_root_and_described(rule: dict[str, Any], description: str) -> None:
    flat = flatten({"type": "object", "properties": {"a": {}}, **rule})
    assert not REMOVED & flat.keys()
    assert flat["description"] == description


def test_description_of_rules_is_truncated() -> None:
    flat = flatten({"anyOf": [{"required": [f"property_number_{n}"]} for n in range(500)], "description": "D."})
    assert flat["description"].startswith("D.\n\nAt least one of: ")
    assert len(flat["description"]) < 700


def test_schema_with_reference_into_removed_keyword_is_returned_unchanged() -> None:
    schema = {
        "oneOf": [{"properties": {"a": {"type": "string"}}}],
        "properties": {"b": {"$ref": "#/oneOf/0/properties/a"}},
    }
    assert flatten(schema) is schema


def test_flattening_terminates_for_forms_that_reference_each_other() -> None:
    schema = {
        "anyOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
    }
    assert not REMOVED & flatten(schema).keys()


# ---- anything at all ----------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "c"])
_VALUES: st.SearchStrategy[Any] = st.sampled_from([0, 1, True, "x", "y", None, [], {}])
_PROPERTY: st.SearchStrategy[Any] = (
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "boolean", "object"])})
    | st.fixed_dictionaries({"const": _VALUES})
    | st.fixed_dictionaries({"enum": st.lists(_VALUES, min_size=1, max_size=3, unique_by=repr)})
    | st.fixed_dictionaries({"type": st.just("string"), "const": st.sampled_from("xy"), "description": st.just("tag")})
    | st.booleans()
    | st.fixed_dictionaries({})
)
_OBJECT: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object"),
        "properties": st.dictionaries(_NAMES, _PROPERTY, max_size=3),
        "required": st.lists(_NAMES, max_size=2, unique=True),
        "additionalProperties": st.booleans() | _PROPERTY,
        "patternProperties": st.just({"^a": {"type": "string"}}),
        "unevaluatedProperties": st.just(False),
        "$ref": st.sampled_from(["#/$defs/d", "#/$defs/e"]),
    },
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    branches = st.lists(inner | st.booleans(), min_size=1, max_size=3)
    rules: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {},
        optional={
            "oneOf": branches,
            "anyOf": branches,
            "allOf": branches,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(_NAMES, inner, max_size=2),
        },
    )
    return st.tuples(_OBJECT, rules).map(_joined)


def _joined(parts: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return parts[0] | parts[1]


_SCHEMA = _nested(st.recursive(_OBJECT, _nested, max_leaves=3))
_DEFS = {"d": {"properties": {"a": {"enum": ["x", 1]}}, "required": ["a"]}, "e": {"additionalProperties": False}}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_SCHEMA, st.lists(st.dictionaries(_NAMES, _VALUES, max_size=3), min_size=1, max_size=12))
def test_flattened_schema_accepts_everything_that_the_exact_schema_accepts(
    schema: dict[str, Any], arguments: list[dict[str, Any]]
) -> None:
    schema = {**schema, "$defs": _DEFS}
    before = deepcopy(schema)
    flat = flatten(schema)
    assert schema == before
    assert not REMOVED & flat.keys()
    exact, loose = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(flat)
    for candidate in arguments:
        assert loose.is_valid(candidate) or not exact.is_valid(candidate)
