"""Schemas that the suite compares literally."""

from typing import Any, Final

Json = dict[str, Any]

NOTHING: Final[Json] = {"type": "object", "properties": {}}


def strings(**properties: str) -> Json:
    """Build an object schema of required strings from their descriptions."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": description} for name, description in properties.items()
        },
        "required": list(properties),
    }


HEADER: Final[Json] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}

DIALECT: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

DEFAULTS: Final[Json] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}

_OPTIONS: Final = ["option1", "option2", "option3"]


def _titled(kind: str) -> list[Json]:
    ordinals = ("First", "Second", "Third")
    return [{"const": f"value{number}", "title": f"{word} {kind}"} for number, word in enumerate(ordinals, 1)]


ENUMS: Final[Json] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("Choice")}},
    },
}
