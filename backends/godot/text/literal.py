"""Conversion between JSON values and Godot literals, for edits without an engine."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from backends.godot.text.scan import quote, unquote
from gateway.contract import Json
from gateway.errors import Fault, Kind

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "Vector2": ("x", "y"),
    "Vector2i": ("x", "y"),
    "Vector3": ("x", "y", "z"),
    "Vector3i": ("x", "y", "z"),
    "Vector4": ("x", "y", "z", "w"),
    "Quaternion": ("x", "y", "z", "w"),
    "Color": ("r", "g", "b", "a"),
    "Rect2": ("x", "y", "width", "height"),
    "Rect2i": ("x", "y", "width", "height"),
}
_DEFAULTS: Final = {"a": 1}
# Text that the engine parses as a typed value: `Name(…)`, `&"name"`, `^"path"`, `NodePath("…")`.
_TYPED: Final = re.compile(
    r"(Vector[234]i?|Color|Rect2i?|Transform[23]D|Basis|Quaternion|Plane|AABB|Projection"
    r"|Packed\w+Array)\([-+0-9.eE,\s\"\w#/:]*\)|NodePath\(\"[^\"\\]*\"\)|[&^]\"[^\"\\]*\""
)


def to_literal(value: Any) -> str:
    """Return the Godot literal of a JSON value. Raises `Fault(INVALID_INPUT)` if there is none, as for a resource."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number_literal(value)
        case str():
            return value if _TYPED.fullmatch(value) else quote(value)
        case list():
            return "[" + ", ".join(map(to_literal, cast("list[Any]", value))) + "]"
        case dict():
            return _object_literal(cast("Json", value))
        case _:
            raise Fault(Kind.INVALID_INPUT, "A value is not JSON.")


def _object_literal(value: Json) -> str:
    kind = value.get("$type")
    if kind is None and "$resource" not in value:
        if not value:
            return "{}"
        inner = ",\n".join(f"{quote(name)}: {to_literal(item)}" for name, item in value.items())
        return "{\n" + inner + "\n}"
    names = TYPES.get(str(kind))
    if kind == "NodePath" and isinstance(value.get("path"), str):
        return f"NodePath({quote(value['path'])})"
    if kind == "StringName" and isinstance(value.get("name"), str):
        return f"&{quote(value['name'])}"
    if names is None:
        raise Fault(
            Kind.INVALID_INPUT, "Without an engine a value must be plain JSON or one of " + ", ".join(TYPES) + "."
        )
    parts = [value.get(name, _DEFAULTS.get(name, 0)) for name in names]
    if not all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
        raise Fault(Kind.INVALID_INPUT, f"A {kind} must contain only numbers.")
    return f"{kind}({', '.join(to_literal(part) for part in parts)})"


def _number_literal(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def from_literal(value: str) -> Any:
    """Return the JSON value of a simple literal; other literals are returned as text."""
    if value[:1] == '"':
        return unquote(value)
    try:
        parsed: Any = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, bool | int | float) or parsed is None else value
