"""How the tables of tools write parameters: `name[*][:type][=default]`, blanks between; `*` is required.

Types: str int num bool any object [str] (a|b|c), numbers with bounds as `int>=1<=32`. `P` stands for projectPath, `S`
for scenePath, both required; in lower case, both optional. What is nested is named in `NESTED`.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from gateway.contract import Json

_SHORT: Final = {"P": "projectPath*", "S": "scenePath*", "p": "projectPath", "s": "scenePath"}
_TOKEN: Final = re.compile(r"(?P<name>\w+)(?P<required>\*)?(:(?P<type>[^=]*?(?:[<>]=[^=]*?)*))?(=(?P<default>.*))?")
_PLAIN: Final[Mapping[str, Json]] = {
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
    'A JSON value; typed ones as {"$type": "Vector2", "x": 1, "y": 2} or as Godot writes them, resources by path.'
)

WORDS: Final[Mapping[str, str]] = {
    "projectPath": "Absolute path of the folder that holds project.godot.",
    "scenePath": "Scene file, relative to the project or res://.",
    "nodePath": 'Node inside the scene: "." or "root" is its root, else names joined by "/".',
    "parentNodePath": "Node that it goes below; the root unless given.",
    "newParentPath": "Node that it moves below.",
    "properties": f"Property -> value. {_VALUE}",
    "props": f"Property -> value. {_VALUE}",
    "value": _VALUE,
    "action": "What to do.",
    "godotPath": "Another engine than the operator's; needs ALLOW_EXTERNAL_TOOLS.",
    "timeoutMs": "How long to wait for the editor.",
    "scriptPath": "Script file, relative to the project or res://.",
    "outputPath": "File to write, inside the project.",
    "overwrite": "Whether an existing file may be replaced.",
    "directory": "Folder to look in.",
    "preset": "Name of an export preset.",
    "dryRun": "Only say what would change.",
    "params": "Parameters of the operation.",
    "token": "Key for the bridge; never shown again.",
}


def _closed(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _many(item: Json, **more: Any) -> Json:
    return {"type": "array", "items": item, **more}


_STR, _OBJ, _NUM = _PLAIN["str"], _PLAIN["object"], _PLAIN["num"]
_EVENT = _closed(
    {
        "type": {"enum": ["key", "mouse_button", "joypad_button", "joypad_axis"]},
        "keycode": _STR,
        "button": _NUM,
        "axis": _NUM,
        "axisValue": _NUM,
    },
    "type",
)
_KEYS: Json = _many({"type": ["string", "integer"]})

NESTED: Final[Mapping[str, Json]] = {
    "events": _many(_EVENT),
    "operations": _many(_closed({"tool": _STR, "args": _OBJ, "id": _STR}, "tool", "args"), minItems=1, maxItems=100),
    "headlessSteps": _many(_closed({"operation": _STR, "params": _OBJ}, "operation"), minItems=1, maxItems=100),
    "editorSteps": _many(_closed({"method": _STR, "params": _OBJ}, "method"), minItems=1, maxItems=100),
    "items": _many(_OBJ, minItems=1, maxItems=100),
    "components": _many({"type": ["object", "string"]}, minItems=1, maxItems=100),
    "mapActions": _many(_closed({"name": _STR, "keys": _KEYS, "deadzone": _NUM}, "name"), minItems=1, maxItems=100),
    "paths": _many(_STR, minItems=1),
    "scalar": {"type": ["string", "number", "boolean"]},
}


def parameters(written: str) -> tuple[dict[str, Json], tuple[str, ...]]:
    """(properties, required) of a row's parameters."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for word in written.split():
        token = _TOKEN.fullmatch(_SHORT.get(word, word))
        if token is None:
            raise ValueError(f"not a parameter: {word}")
        name = token["name"]
        properties[name] = _schema(name, token["type"] or "str", token["default"])
        if token["required"]:
            required.append(name)
    return properties, tuple(required)


@lru_cache(maxsize=512)
def defaults(written: str) -> Mapping[str, Any]:
    """The values of what a caller leaves out."""
    properties, _ = parameters(written)
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def _schema(name: str, written: str, default: str | None) -> Json:
    schema = dict(_typed(written))
    if name in WORDS:
        schema["description"] = WORDS[name]
    if default is not None:
        schema["default"] = default if schema.get("type") == "string" or "enum" in schema else json.loads(default)
    return schema


def _typed(written: str) -> Json:
    if written in NESTED:
        return dict(NESTED[written])
    if written.startswith("("):
        return {"enum": written.strip("()").split("|")}
    kind, *bounds = re.split(r"([<>]=)", written)
    schema: Json = dict(_PLAIN[kind])
    for sign, number in zip(bounds[::2], bounds[1::2], strict=True):
        schema[_BOUNDS[sign]] = json.loads(number)
    return schema
