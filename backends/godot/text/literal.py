"""JSON values as Godot writes them, where no engine is there to know a property's type; and the simple ones back."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from backends.godot.text.scan import quoted, unquoted
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
# What the engine's own reader takes for a value of a type: `Name(…)`, `&"name"`, `^"path"`, `NodePath("…")`.
_TYPED: Final = re.compile(
    r"(Vector[234]i?|Color|Rect2i?|Transform[23]D|Basis|Quaternion|Plane|AABB|Projection"
    r"|Packed\w+Array)\([-+0-9.eE,\s\"\w#/:]*\)|NodePath\(\"[^\"\\]*\"\)|[&^]\"[^\"\\]*\""
)


def literal(value: Any) -> str:
    """Raises `Fault(INVALID_INPUT)` for what has no text of its own, such as a resource."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case str():
            return value if _TYPED.fullmatch(value) else quoted(value)
        case list():
            return "[" + ", ".join(map(literal, cast("list[Any]", value))) + "]"
        case dict():
            return _object(cast("Json", value))
        case _:
            raise Fault(Kind.INVALID_INPUT, "A value is no JSON.")


def _object(value: Json) -> str:
    kind = value.get("$type")
    if kind is None and "$resource" not in value:
        if not value:
            return "{}"
        inner = ",\n".join(f"{quoted(name)}: {literal(held)}" for name, held in value.items())
        return "{\n" + inner + "\n}"
    names = TYPES.get(str(kind))
    if kind == "NodePath" and isinstance(value.get("path"), str):
        return f"NodePath({quoted(value['path'])})"
    if kind == "StringName" and isinstance(value.get("name"), str):
        return f"&{quoted(value['name'])}"
    if names is None:
        raise Fault(Kind.INVALID_INPUT, "Without an engine a value is plain JSON or one of " + ", ".join(TYPES) + ".")
    parts = [value.get(name, _DEFAULTS.get(name, 0)) for name in names]
    if not all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
        raise Fault(Kind.INVALID_INPUT, f"A {kind} has numbers only.")
    return f"{kind}({', '.join(literal(part) for part in parts)})"


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def plain(value: str) -> Any:
    """The JSON value of a simple literal; anything else as the text it is."""
    if value[:1] == '"':
        return unquoted(value)
    try:
        found: Any = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, bool | int | float) or found is None else value
