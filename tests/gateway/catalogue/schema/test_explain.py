"""What a bad argument is told: the place, the rule, what would help."""

from typing import Any

import pytest

from gateway.catalogue.schema import compile_check
from gateway.errors import Fault, Kind

from .measuring import refusal


@pytest.mark.parametrize(
    ("schema", "arguments", "path", "rule", "words"),
    [
        ({"required": ["scriptType"]}, {}, "input.scriptType", "required", "is required"),
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "input.a", "type", "must be string, not number"),
        (
            {"properties": {"a": {"properties": {"b": {"enum": ["x", "y"]}}}}},
            {"a": {"b": "z"}},
            "input.a.b",
            "enum",
            "must be one of x or y",
        ),
        ({"properties": {"a": {"items": {"minimum": 3}}}}, {"a": [4, 1]}, "input.a.1", "minimum", "must be at least 3"),
        ({"properties": {"a": {"maxLength": 2}}}, {"a": "abc"}, "input.a", "maxLength", "at most 2 characters"),
        ({"properties": {"a": {"pattern": "^x"}}}, {"a": "b"}, "input.a", "pattern", "must match the pattern ^x"),
        ({"properties": {"a": {"const": 7}}}, {"a": 8}, "input.a", "const", "must be 7"),
        ({"properties": {"a": {"enum": []}}}, {"a": 8}, "input.a", "enum", "must be one of nothing"),
        ({"properties": {"a": False}}, {"a": 8}, "input.a", "falseSchema", "is not allowed"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "input.abc", "propertyNames", "at most 2 characters"),
        (
            {"anyOf": [{"required": ["scriptPath"]}, {"required": ["scriptId"]}]},
            {},
            "input",
            "anyOf",
            "one of scriptPath or scriptId is required",
        ),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": 1, "b": 1},
            "input",
            "oneOf",
            "more than one",
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            {"a": 1},
            "input.a",
            "type",
            "must be string or null, not number",
        ),
    ],
)
def test_a_refusal_names_the_place_and_the_rule(
    schema: dict[str, Any], arguments: dict[str, Any], path: str, rule: str, words: str
) -> None:
    fault = refusal(schema, arguments)
    assert fault.kind is Kind.INVALID_INPUT
    assert fault.details == {"validation_path": path, "validation_rule": rule}
    assert words in fault.message


def test_an_unknown_property_is_named_with_the_nearest_known_one() -> None:
    fault = refusal({"properties": {"scriptType": {}}, "additionalProperties": False}, {"scripttype": 1})
    assert fault.details["validation_path"] == "input.scripttype"
    assert fault.suggested_fix is not None
    assert "scriptType" in fault.suggested_fix


def test_of_tagged_forms_the_one_that_was_meant_is_explained() -> None:
    def form(action: str, needs: str) -> dict[str, Any]:
        return {"properties": {"action": {"const": action}}, "required": ["action", needs]}

    schema = {"oneOf": [form("open", "path"), form("close", "handle")]}
    assert refusal(schema, {"action": "open"}).details["validation_path"] == "input.path"
    assert "must be one of open or close" in refusal(schema, {"action": "x", "path": 1, "handle": 1}).message


def test_a_missing_property_is_said_before_an_either_or() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "required": ["c"]}
    assert refusal(schema, {}).details["validation_path"] == "input.c"


def test_the_prefix_is_the_callers() -> None:
    with pytest.raises(Fault) as caught:
        compile_check({"required": ["a"]}, prefix="arguments")({})
    assert caught.value.details["validation_path"] == "arguments.a"


@pytest.mark.parametrize(
    ("schema", "key", "value"),
    [
        ({"properties": {"a": {"type": "integer"}}}, "a", "s" * 5000),
        ({"properties": {"a": {"enum": ["x"]}}}, "a", "s" * 5000),
        ({"additionalProperties": False}, "k" * 5000, 1),
        ({"propertyNames": {"maxLength": 9}}, "k" * 5000, 1),
        ({"additionalProperties": {"type": "string"}}, "k" * 5000, 1),
        ({"properties": {"a": {"not": {"type": "string"}}}}, "a", "s" * 5000),
    ],
)
def test_a_message_never_repeats_what_was_sent_at_length(schema: dict[str, Any], key: str, value: Any) -> None:
    fault = refusal(schema, {key: value})
    assert len(fault.message) < 250
    assert "s" * 81 not in fault.message
    assert "k" * 81 not in fault.message + str(fault.details) + str(fault.suggested_fix)
