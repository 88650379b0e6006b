"""Explanations of invalid arguments: path, rule and suggested fix."""

from typing import Any

import pytest

from gateway.catalogue.schema import compile_check
from gateway.errors import Fault, Kind

from .measuring import check_error


@pytest.mark.parametrize(
    ("schema", "arguments", "path", "rule", "text"),
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
def test_error_contains_the_path_and_the_rule(
    schema: dict[str, Any], arguments: dict[str, Any], path: str, rule: str, text: str
) -> None:
    fault = check_error(schema, arguments)
    assert fault.kind is Kind.INVALID_INPUT
    assert fault.details == {"validation_path": path, "validation_rule": rule}
    assert text in fault.message


def test_unknown_property_error_suggests_the_closest_known_property() -> None:
    fault = check_error({"properties": {"scriptType": {}}, "additionalProperties": False}, {"scripttype": 1})
    assert fault.details["validation_path"] == "input.scripttype"
    assert fault.suggested_fix is not None
    assert "scriptType" in fault.suggested_fix


def test_of_tagged_forms_the_one_with_the_matching_tag_is_explained() -> None:
    def form(action: str, needs: str) -> dict[str, Any]:
        return {"properties": {"action": {"const": action}}, "required": ["action", needs]}

    schema = {"oneOf": [form("open", "path"), form("close", "handle")]}
    assert check_error(schema, {"action": "open"}).details["validation_path"] == "input.path"
    assert "must be one of open or close" in check_error(schema, {"action": "x", "path": 1, "handle": 1}).message


def test_missing_property_is_reported_before_an_error_of_alternatives() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "required": ["c"]}
    assert check_error(schema, {}).details["validation_path"] == "input.c"


def test_path_starts_with_the_given_prefix() -> None:
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
def test_long_values_are_truncated_in_messages(schema: dict[str, Any], key: str, value: Any) -> None:
    fault = check_error(schema, {key: value})
    assert len(fault.message) < 250
    assert "s" * 81 not in fault.message
    assert "k" * 81 not in fault.message + str(fault.details) + str(fault.suggested_fix)
