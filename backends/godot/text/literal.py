"""Conversion between JSON values and Godot literals. Every Variant type survives a round trip.

Types without a JSON counterpart are objects: `{"$type": "Vector2", "x": 1, "y": 2}`, `{"$type": "PackedInt32Array",
"values": [1, 2]}`, `{"$type": "Array", "of": "int", "values": [1]}`. Other literals are `{"$literal": "RID()"}`.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
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
    "Vector4i": ("x", "y", "z", "w"),
    "Quaternion": ("x", "y", "z", "w"),
    "Plane": ("x", "y", "z", "d"),
    "Color": ("r", "g", "b", "a"),
    "Rect2": ("x", "y", "width", "height"),
    "Rect2i": ("x", "y", "width", "height"),
    "AABB": ("x", "y", "z", "width", "height", "depth"),
}
"""Types with named numbers, in the order of the literal."""
NUMBER_COUNTS: Final[Mapping[str, int]] = {"Transform2D": 6, "Basis": 9, "Transform3D": 12, "Projection": 16}
"""Types whose numbers are listed in `values`."""
PACKED: Final[Mapping[str, int]] = {
    "PackedByteArray": 1,
    "PackedInt32Array": 1,
    "PackedInt64Array": 1,
    "PackedFloat32Array": 1,
    "PackedFloat64Array": 1,
    "PackedStringArray": 1,
    "PackedVector2Array": 2,
    "PackedVector3Array": 3,
    "PackedVector4Array": 4,
    "PackedColorArray": 4,
}
"""Packed arrays and how many numbers one element takes."""
_DEFAULTS: Final = {"a": 1}
_ELEMENT: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Text that the engine parses as a typed value: `Name(…)`, `&"name"`, `^"path"`, `NodePath("…")`.
_TYPED: Final = re.compile(
    r"(Vector[234]i?|Color|Rect2i?|Transform[23]D|Basis|Quaternion|Plane|AABB|Projection"
    r"|Packed\w+Array)\([-+0-9.eE,\s\"\w#/:]*\)|NodePath\(\"[^\"\\]*\"\)|[&^]\"[^\"\\]*\""
)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>[&^]?\"(?:[^\"\\]|\\.)*\")|(?P<number>[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|inf|nan)\b)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<mark>[\[\](){},:]))",
    re.DOTALL,
)
_MAX_DEPTH: Final = 64

ReferenceReader = Callable[[str, str], Any]
"""Returns the JSON value of a reference: kind (`ExtResource` or `SubResource`) and id."""


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
            return _array_literal(cast("list[Any]", value))
        case dict():
            return _object_literal(cast("Json", value))
        case _:
            raise Fault(Kind.INVALID_INPUT, "A value is not JSON.")


def _array_literal(value: list[Any]) -> str:
    return "[" + ", ".join(map(to_literal, value)) + "]"


def _object_literal(value: Json) -> str:
    kind = value.get("$type")
    if kind is None and "$resource" not in value and "$literal" not in value:
        return _dictionary_literal([(key, item) for key, item in value.items()])
    if isinstance(text := value.get("$literal"), str):
        return _checked(text)
    if isinstance(kind, str) and (converted := _typed_literal(kind, value)) is not None:
        return converted
    known = ", ".join((*TYPES, *NUMBER_COUNTS, *PACKED, "Array", "Dictionary", "NodePath", "StringName"))
    raise Fault(Kind.INVALID_INPUT, f"Without an engine a value must be plain JSON or one of {known}.")


def _typed_literal(kind: str, value: Json) -> str | None:
    values: Any = value.get("values")
    numbers = cast("list[Any]", values) if isinstance(values, list) else None
    match kind:
        case "NodePath" if isinstance(value.get("path"), str):
            return f"NodePath({quote(value['path'])})"
        case "StringName" if isinstance(value.get("name"), str):
            return f"&{quote(value['name'])}"
        case "float" if value.get("value") in ("inf", "-inf", "nan"):
            return value["value"]
        case "Array" if numbers is not None:
            of = value.get("of")
            return f"Array[{_element(of)}]({_array_literal(numbers)})" if of else _array_literal(numbers)
        case "Dictionary" if isinstance(value.get("entries"), list):
            inner = _dictionary_literal([(key, item) for key, item in value["entries"]])
            of = value.get("of")
            return f"Dictionary[{', '.join(map(_element, of))}]({inner})" if of else inner
        case "PackedByteArray" if isinstance(value.get("base64"), str):
            return f"PackedByteArray({quote(value['base64'])})"
        case "PackedStringArray" if numbers is not None:
            return f"{kind}({', '.join(quote(str(each)) for each in numbers)})"
        case _:
            return _numbers_literal(kind, value, numbers)


def _numbers_literal(kind: str, value: Json, numbers: list[Any] | None) -> str | None:
    if names := TYPES.get(kind):
        numbers = numbers or [value.get(name, _DEFAULTS.get(name, 0)) for name in names]
        wanted = len(names)
    elif kind in PACKED and numbers is not None:
        numbers = [each for item in numbers for each in (_components(item))]
        wanted = len(numbers) - len(numbers) % PACKED[kind]
    else:
        wanted = NUMBER_COUNTS.get(kind, -1)
    if numbers is None or wanted < 0:
        return None
    if not all(isinstance(part, int | float) and not isinstance(part, bool) for part in numbers):
        raise Fault(Kind.INVALID_INPUT, f"A {kind} must contain only numbers.")
    if len(numbers) != wanted:
        raise Fault(Kind.INVALID_INPUT, f"A {kind} takes another number of values than {len(numbers)}.")
    return f"{kind}({', '.join(to_literal(part) for part in numbers)})"


def _components(item: Any) -> list[Any]:
    """Return the numbers of one element of a packed array: a number, a list or a typed object."""
    if isinstance(item, dict):
        found = cast("Json", item)
        names = TYPES.get(str(found.get("$type")), tuple(name for name in ("x", "y", "z", "w") if name in found))
        return [found.get(name, _DEFAULTS.get(name, 0)) for name in names]
    return cast("list[Any]", item) if isinstance(item, list) else [item]


def _dictionary_literal(entries: list[tuple[Any, Any]]) -> str:
    if not entries:
        return "{}"
    lines = [f"{quote(key) if isinstance(key, str) else to_literal(key)}: {to_literal(item)}" for key, item in entries]
    return "{\n" + ",\n".join(lines) + "\n}"


def _element(name: Any) -> str:
    if not isinstance(name, str) or not _ELEMENT.fullmatch(name):
        raise Fault(Kind.INVALID_INPUT, f"{name!r} is not a type of elements.")
    return name


def _checked(text: str) -> str:
    """Return a literal of the caller's. Raises `Fault(INVALID_INPUT)` if it is more or less than one value."""
    try:
        _Parser(text, None).parse()
    except ValueError as exc:
        raise Fault(Kind.INVALID_INPUT, "$literal is not a Godot literal.") from exc
    return text.strip()


def _number_literal(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def from_literal(value: str, references: ReferenceReader | None = None) -> Any:
    """Return the JSON value of a literal. `to_literal` reverses it. Text that is no literal is returned unchanged."""
    try:
        return _Parser(value, references).parse()
    except ValueError:
        return value


class _Parser:
    """Recursive descent over one literal. Raises `ValueError` for anything that is not exactly one literal."""

    def __init__(self, text: str, references: ReferenceReader | None) -> None:
        self._text = text
        self._position = 0
        self._references = references

    def parse(self) -> Any:
        value = self._value(0)
        if self._text[self._position :].strip():
            raise ValueError
        return value

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._position)
        if token is None:
            raise ValueError
        self._position = token.end()
        return token

    def _peek(self) -> str:
        token = _TOKEN.match(self._text, self._position)
        return token[0].strip() if token else ""

    def _expect(self, mark: str) -> None:
        if self._next()["mark"] != mark:
            raise ValueError

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError
        token = self._next()
        if (text := token["string"]) is not None:
            return _string(text)
        if (number := token["number"]) is not None:
            return _number(number)
        match token["mark"]:
            case "[":
                return self._items("]", depth)
            case "{":
                return _dictionary(self._entries(depth))
            case None:
                return self._word(token["word"], token.start("word"), depth)
            case _:
                raise ValueError

    def _items(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._peek() != end:
            found.append(self._value(depth + 1))
            if self._peek() != ",":
                break
            self._expect(",")
        self._expect(end)
        return found

    def _entries(self, depth: int) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        while self._peek() != "}":
            key = self._value(depth + 1)
            self._expect(":")
            found.append((key, self._value(depth + 1)))
            if self._peek() != ",":
                break
            self._expect(",")
        self._expect("}")
        return found

    def _word(self, word: str, start: int, depth: int) -> Any:
        if word in ("true", "false", "null", "nil"):
            return {"true": True, "false": False}.get(word)
        if word in ("Array", "Dictionary") and self._peek() == "[":
            return self._typed_container(word, start, depth)
        self._expect("(")
        if word == "Object":
            return self._object(depth)
        items = self._items(")", depth)
        if word in ("ExtResource", "SubResource"):
            raw = str(items[0]) if len(items) == 1 else ""
            return self._references(word, raw) if self._references else {"$literal": f"{word}({quote(raw)})"}
        return _constructed(word, items, self._text[start : self._position])

    def _typed_container(self, word: str, start: int, depth: int) -> Any:
        self._expect("[")
        begin = self._position
        while self._peek() not in ("]", ""):
            self._value_or_word(depth)
        of = [each.strip() for each in self._text[begin : self._position].split(",")]
        self._expect("]")
        self._expect("(")
        inner = self._next()["mark"]
        if inner == "[":
            value: Any = {"$type": "Array", "of": of[0], "values": self._items("]", depth)}
        elif inner == "{":
            value = {"$type": "Dictionary", "of": of, "entries": [list(each) for each in self._entries(depth)]}
        else:
            raise ValueError
        self._expect(")")
        plain = all(_ELEMENT.fullmatch(each) for each in of)
        return value if plain else {"$literal": self._text[start : self._position]}

    def _value_or_word(self, depth: int) -> None:
        """Skip an element type: a class name, or the reference of a script."""
        token = self._next()
        if token["word"] and self._peek() == "(":
            self._expect("(")
            self._items(")", depth)

    def _object(self, depth: int) -> Any:
        name = self._next()["word"]
        properties: Json = {}
        while self._peek() == ",":
            self._expect(",")
            key = self._value(depth + 1)
            self._expect(":")
            properties[str(key)] = self._value(depth + 1)
        self._expect(")")
        return {"$type": "Object", "class": name, "properties": properties}


def _string(text: str) -> Any:
    match text[0]:
        case "&":
            return {"$type": "StringName", "name": unquote(text)}
        case "^":
            return {"$type": "NodePath", "path": unquote(text)}
        case _:
            return unquote(text)


def _number(text: str) -> Any:
    if text.lstrip("+-") in ("inf", "nan"):
        return {"$type": "float", "value": text.lstrip("+")}
    return json.loads(text.lstrip("+")) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def _dictionary(entries: list[tuple[Any, Any]]) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key, _ in entries):
        return dict(entries)
    return {"$type": "Dictionary", "entries": [list(each) for each in entries]}


def _constructed(word: str, items: list[Any], text: str) -> Any:
    if names := TYPES.get(word):
        if any(isinstance(each, dict) for each in items):  # JSON has no infinite numbers.
            return {"$literal": text}
        return {"$type": word, **dict(zip(names, items, strict=True))}
    if word in NUMBER_COUNTS or word in PACKED:
        if word == "PackedByteArray" and len(items) == 1 and isinstance(items[0], str):
            return {"$type": word, "base64": items[0]}
        return {"$literal": text} if any(isinstance(each, dict) for each in items) else {"$type": word, "values": items}
    match word:
        case "NodePath":
            return {"$type": "NodePath", "path": str(items[0])}
        case "StringName":
            return {"$type": "StringName", "name": str(items[0])}
        case _:
            return {"$literal": text}
