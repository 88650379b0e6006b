"""Compilation of schemas: supported features and rejected schemas."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.catalogue.schema import InvalidSchema, compile_check
from gateway.errors import Fault, Kind

from .measuring import check_error


def test_local_references_anchors_and_dynamic_references_work() -> None:
    tree = {
        "$id": "tree",
        "$dynamicAnchor": "node",
        "properties": {"value": {"$ref": "#count"}, "children": {"items": {"$dynamicRef": "#node"}}},
        "$defs": {"count": {"$anchor": "count", "type": "integer"}},
    }
    schema = {
        "properties": {"tree": {"$ref": "tree"}, "n": {"$ref": "#/$defs/n"}},
        "$defs": {"t": tree, "n": {"minimum": 1}},
    }
    compile_check(schema)({"tree": {"value": 1, "children": [{"value": 2}]}, "n": 1})
    assert (
        check_error(schema, {"tree": {"children": [{"value": "x"}]}}).details["validation_path"]
        == "input.tree.children.0.value"
    )
    assert check_error(schema, {"n": 0}).details["validation_path"] == "input.n"


@pytest.mark.parametrize(
    ("dialect", "accepted"),
    [
        ("http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft/2019-09/schema", True),
        ("https://json-schema.org/draft/2020-12/schema", True),
        ("http://json-schema.org/draft-04/schema#", False),
        ("https://example.test/own", False),
        (7, False),
    ],
)
def test_only_three_dialects_are_supported(dialect: Any, accepted: bool) -> None:
    schema = {"$schema": dialect, "type": "object"}
    if accepted:
        compile_check(schema)({})
    else:
        with pytest.raises(InvalidSchema):
            compile_check(schema)


def test_dialect_determines_the_meaning_of_a_keyword() -> None:
    pair = {"items": [{"type": "string"}, {"type": "integer"}]}
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": pair}}
    assert check_error(draft7, {"a": ["x", "y"]}).details["validation_path"] == "input.a.1"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        [],
        "x",
        None,
        {"type": "no-such-type"},
        {"$ref": "#/nowhere"},
        {"properties": 7},
        {"$ref": "#"},
        {"a": object()},
    ],
)
def test_invalid_schema_is_rejected_with_a_reason(schema: Any) -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_check(schema)
    assert str(caught.value)


def test_look_around_pattern_is_skipped_and_everything_else_is_checked() -> None:
    schema = {
        "properties": {
            "password": {"type": "string", "pattern": "^(?=.*[A-Z]).+$", "maxLength": 5},
            "plain": {"pattern": "^[a-z]+$"},
            "never": {"not": {"pattern": "^(?!x)"}},
            "one": {"oneOf": [{"pattern": "(a)\\1"}, {"maxLength": 3}]},
        },
        "patternProperties": {"^(?!x-)": {"type": "string"}},
        "additionalProperties": False,
    }
    check = compile_check(schema)
    check({"password": "abc", "plain": "x", "never": "x", "one": "abc", "x-other": 1})
    assert check_error(schema, {"password": "abcdef"}).details["validation_rule"] == "maxLength"
    assert check_error(schema, {"plain": "X"}).details["validation_rule"] == "pattern"


def test_equal_schemas_are_compiled_once() -> None:
    assert compile_check({"type": "object", "title": "once"}) is compile_check({"type": "object", "title": "once"})


def test_check_is_independent_of_later_changes_to_the_schema() -> None:
    schema: dict[str, Any] = {"required": ["a"], "properties": {"a": {}}, "additionalProperties": False}
    check = compile_check(schema)
    schema["properties"].clear()
    with pytest.raises(Fault) as caught:
        check({"a": 1, "A": 2})
    assert caught.value.details["validation_path"] == "input.A"


def test_arguments_that_are_not_json_are_rejected_as_invalid_input() -> None:
    assert check_error({"properties": {"a": {"type": "string"}}}, {"a": object()}).kind is Kind.INVALID_INPUT


def test_recursive_schema_accepts_arguments_of_ordinary_depth() -> None:
    def group(keyword: str) -> dict[str, Any]:
        return {
            "properties": {keyword: {"items": {"$ref": "#/$defs/f"}}},
            "required": [keyword],
            "additionalProperties": False,
        }

    leaf = {"properties": {"field": {"type": "string"}}, "required": ["field"], "additionalProperties": False}
    schema = {
        "$defs": {"f": {"anyOf": [group("and"), group("or"), leaf]}},
        "properties": {"filter": {"$ref": "#/$defs/f"}},
    }
    value: dict[str, Any] = {"field": "x"}
    for depth in range(12):
        value = {"and" if depth % 2 else "or": [value, {"field": "y"}]}
    compile_check(schema)({"filter": value})


_KEYWORDS = [
    "type",
    "properties",
    "required",
    "items",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "enum",
    "const",
    "pattern",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "uniqueItems",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "$defs",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$schema",
    "multipleOf",
    "minimum",
    "maxLength",
    "dependentSchemas",
    "dependentRequired",
    "format",
    "definitions",
]


_WORDS = st.sampled_from(
    ["object", "string", "#", "#/$defs/a", "a", "^a", "(?=a)", "[", "urn:x", "http://x.test/y", ""]
)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | _WORDS


_JSON = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(_KEYWORDS) | st.sampled_from("ab"), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=2_000, suppress_health_check=[HealthCheck.too_slow])
@given(_JSON, st.dictionaries(st.sampled_from("ab"), _JSON, max_size=3))
def test_any_json_value_compiles_or_raises_invalid_schema(schema: Any, arguments: dict[str, Any]) -> None:
    try:
        check = compile_check(schema)
    except InvalidSchema:
        return
    # Any exception other than a Fault fails the test.
    with suppress(Fault):
        check(arguments)
