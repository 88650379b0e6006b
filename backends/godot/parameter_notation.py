"""Parser for the compact parameter notation of the tool table.

A signature is a space-separated list of `name[*][:type][=default]`; `*` marks a required parameter.
Types are `str int num bool any object [str] (a|b|c)`; numbers may have bounds, as in `int>=1<=32`.
`P` is short for projectPath and `S` for scenePath, both required; `p` and `s` are the optional forms.
Types with a nested schema are named in `NESTED`.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from gateway.contract import Json

_ABBREVIATIONS: Final = {"P": "projectPath*", "S": "scenePath*", "p": "projectPath", "s": "scenePath"}
_TOKEN: Final = re.compile(r"(?P<name>\w+)(?P<required>\*)?(:(?P<type>[^=]*?(?:[<>]=[^=]*?)*))?(=(?P<default>.*))?")
_BASIC_TYPES: Final[Mapping[str, Json]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "num": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
    "[str]": {"type": "array", "items": {"type": "string"}},
    "object|str": {"type": ["object", "string"]},
}
_BOUNDS: Final = {">=": "minimum", "<=": "maximum"}

_VALUE: Final = (
    'A JSON value. Typed values: {"$type": "Vector2", "x": 1, "y": 2} or a Godot literal. Resources: by path.'
)

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "projectPath": "Absolute path of the folder that contains project.godot.",
    "scenePath": "Scene file, relative to the project or res://.",
    "nodePath": 'Node inside the scene: "." or "root" is the root node, otherwise names joined by "/".',
    "parentNodePath": "Parent node; the root node by default.",
    "newParentPath": "New parent node.",
    "properties": f"Property -> value. {_VALUE}",
    "props": f"Property -> value. {_VALUE}",
    "value": _VALUE,
    "action": "Action to execute.",
    "godotPath": "Engine to use instead of the operator's; requires ALLOW_EXTERNAL_TOOLS.",
    "timeoutMs": "Timeout for the editor's response.",
    "scriptPath": "Script file, relative to the project or res://.",
    "outputPath": "File to write, inside the project.",
    "overwrite": "Whether an existing file may be replaced.",
    "directory": "Folder to search.",
    "preset": "Name of an export preset.",
    "dryRun": "Report what would change without changing it.",
    "params": "Parameters of the operation.",
    "token": "Key for the bridge; never shown again.",
}


def _closed_object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _array(item: Json, **more: Any) -> Json:
    return {"type": "array", "items": item, **more}


_STR, _OBJ, _NUM = _BASIC_TYPES["str"], _BASIC_TYPES["object"], _BASIC_TYPES["num"]
_EVENT = _closed_object(
    {
        "type": {"enum": ["key", "mouse_button", "joypad_button", "joypad_axis"]},
        "keycode": _STR,
        "button": _NUM,
        "axis": _NUM,
        "axisValue": _NUM,
    },
    "type",
)
_INT = _BASIC_TYPES["int"]
_BOOL = _BASIC_TYPES["bool"]
_XY = _closed_object({"x": _NUM, "y": _NUM}, "x", "y")
_XYZ = _closed_object({"x": _NUM, "y": _NUM, "z": _NUM}, "x", "y", "z")
_RGBA = _closed_object({"r": _NUM, "g": _NUM, "b": _NUM, "a": _NUM}, "r", "g", "b")
_TILE = _closed_object(
    {"position": _XY, "sourceId": _INT, "atlasCoords": _XY, "alternativeTile": _INT},
    "position",
    "sourceId",
    "atlasCoords",
)
_TRANSITION = _closed_object(
    {
        "from": _STR,
        "to": _STR,
        "autoAdvance": _BOOL,
        "advanceCondition": _STR,
        "xfadeTime": {"type": "number", "minimum": 0},
        "switchMode": {"enum": ["immediate", "sync", "at_end"]},
    },
    "from",
    "to",
)
_KEYS: Json = _array({"type": ["string", "integer"]})

NESTED: Final[Mapping[str, Json]] = {
    "events": _array(_EVENT),
    "operations": _array(
        _closed_object({"tool": _STR, "args": _OBJ, "id": _STR}, "tool", "args"), minItems=1, maxItems=100
    ),
    "headlessSteps": _array(_closed_object({"operation": _STR, "params": _OBJ}, "operation"), minItems=1, maxItems=100),
    "editorSteps": _array(_closed_object({"method": _STR, "params": _OBJ}, "method"), minItems=1, maxItems=100),
    "items": _array(_OBJ, minItems=1, maxItems=100),
    "components": _array({"type": ["object", "string"]}, minItems=1, maxItems=100),
    "mapActions": _array(
        _closed_object({"name": _STR, "keys": _KEYS, "deadzone": _NUM}, "name"), minItems=1, maxItems=100
    ),
    "paths": _array(_STR, minItems=1),
    "list": {"type": "array"},
    "condition": _closed_object(
        {
            "nodePath": _STR,
            "property": _STR,
            "is": {"enum": ["equal", "not_equal", "greater", "less"]},
            "value": {},
            "exists": _BOOL,
        },
        "nodePath",
    ),
    "inputEvents": _array(
        _closed_object(
            {
                "type": {"enum": ["action", "key", "mouse_button", "mouse_motion", "joypad_button", "joypad_axis"]},
                "name": _STR,
                "key": _STR,
                "pressed": _BOOL,
                "frames": {"type": "integer", "minimum": 1, "description": "Frames after which an action is released."},
                "strength": _NUM,
                "button": {"type": ["string", "integer"]},
                "x": _NUM,
                "y": _NUM,
                "axis": _INT,
                "value": _NUM,
            },
            "type",
        ),
        minItems=1,
        maxItems=100,
    ),
    "xy": _XY,
    "xyz": _XYZ,
    "rgba": _RGBA,
    "tiles": _array(_TILE, minItems=1, maxItems=10_000),
    "cells": _array(
        _closed_object({"x": _INT, "y": _INT, "sourceId": _INT, "atlasCoords": _XY}, "x", "y"), maxItems=10_000
    ),
    "states": _array(
        _closed_object({"name": _STR, "animation": _STR, "blendPosition": _NUM}, "name"), minItems=1, maxItems=100
    ),
    "transitions": _array(_TRANSITION, maxItems=500),
    "blendPoints": _array(
        _closed_object({"animation": _STR, "position": _NUM, "positionX": _NUM, "positionY": _NUM}, "animation"),
        minItems=1,
        maxItems=100,
    ),
    "shapeParams": _closed_object({"sizeX": _NUM, "sizeY": _NUM, "sizeZ": _NUM, "radius": _NUM, "height": _NUM}),
    "layerNames": _array(
        _closed_object({"layer": {"type": "integer", "minimum": 1, "maximum": 32}, "name": _STR}, "layer", "name"),
        minItems=1,
    ),
    "entityMapping": _array(
        _closed_object(
            {"ldtkIdentifier": _STR, "godotNodeType": _STR, "properties": _OBJ}, "ldtkIdentifier", "godotNodeType"
        )
    ),
    "scalar": {"type": ["string", "number", "boolean"]},
}


def parse_parameters(signature: str) -> tuple[dict[str, Json], tuple[str, ...]]:
    """Return (JSON schema properties, required names) of a signature."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for word in signature.split():
        token = _TOKEN.fullmatch(_ABBREVIATIONS.get(word, word))
        if token is None:
            raise ValueError(f"not a parameter: {word}")
        name = token["name"]
        properties[name] = _schema(name, token["type"] or "str", token["default"])
        if token["required"]:
            required.append(name)
    return properties, tuple(required)


@lru_cache(maxsize=512)
def parse_defaults(signature: str) -> Mapping[str, Any]:
    """Return the default values of the optional parameters."""
    properties, _ = parse_parameters(signature)
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def _schema(name: str, type_name: str, default: str | None) -> Json:
    schema = dict(_type_schema(type_name))
    if name in DESCRIPTIONS:
        schema["description"] = DESCRIPTIONS[name]
    if default is not None:
        schema["default"] = default if schema.get("type") == "string" or "enum" in schema else json.loads(default)
    return schema


def _type_schema(type_name: str) -> Json:
    if type_name in NESTED:
        return dict(NESTED[type_name])
    if type_name.startswith("("):
        return {"enum": type_name.strip("()").split("|")}
    kind, *bounds = re.split(r"([<>]=)", type_name)
    schema: Json = dict(_BASIC_TYPES[kind])
    for sign, number in zip(bounds[::2], bounds[1::2], strict=True):
        schema[_BOUNDS[sign]] = json.loads(number)
    return schema
