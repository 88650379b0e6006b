"""Which arguments policy may see: each under a name and a type, in one canonical spelling."""

import posixpath
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, cast
from urllib.parse import unquote

from gateway.contract import Json

Value = str | int | bool | tuple[str, ...]
_I64: Final = 2**63
_DECODINGS: Final = 5


class UnreadableArgument(ValueError):
    """An argument that is not what the projection says it is: whoever sent it is refused."""

    def __init__(self, field: str) -> None:
        super().__init__(f"The argument {field} is not of the type that policy reads it as.")


@dataclass(frozen=True, slots=True)
class ProjectedField:
    """One argument: its name in policy, the way to it in the arguments, and its type."""

    name: str
    path: tuple[str, ...]
    type: str

    def read(self, arguments: Json) -> Value | None:
        """None when it is absent or null. Raises `Unreadable` for anything of another type."""
        value: Any = arguments
        for step in self.path:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise UnreadableArgument(self.name)
            value = cast("Json", value).get(step)
        if value is None:
            return None
        try:
            return _READERS[self.type](value)
        except ValueError as exc:
            raise UnreadableArgument(self.name) from exc


class Projection:
    """The fields of one tool, in a fixed order."""

    def __init__(self, fields: tuple[ProjectedField, ...]) -> None:
        self._fields = fields

    def read(self, arguments: Json) -> tuple[tuple[str, Value], ...]:
        """What policy sees of these arguments: hashable, and the same however they were spelled."""
        read = ((field.name, field.read(arguments)) for field in self._fields)
        return tuple((name, value) for name, value in read if value is not None)


class Projections:
    """All that one `args.yaml` says."""

    def __init__(self, patterns: Mapping[str, tuple[ProjectedField, ...]]) -> None:
        self._patterns = patterns

    def of(self, tool: str) -> Projection | None:
        """The fields of a tool by canonical id, of every pattern that matches it; None when there are none."""
        found = {
            field.name: field
            for pattern, fields in self._patterns.items()
            if pattern == tool or fnmatchcase(tool, pattern)
            for field in fields
        }
        return Projection(tuple(found.values())) if found else None

    def schema(self) -> str:
        """The Cedar type of `context.args`."""
        types = {field.name: _CEDAR[field.type] for fields in self._patterns.values() for field in fields}
        return f"type Args = {{ {', '.join(f'{name}?: {kind}' for name, kind in sorted(types.items()))} }};"


def parse_projections(given: Any) -> Projections:
    """What `args.yaml` holds. Raises `ValueError` with the first mistake."""
    if given is None:
        return Projections({})
    if not isinstance(given, dict):
        raise ValueError("expected tools and their fields")
    patterns: dict[str, tuple[ProjectedField, ...]] = {}
    types: dict[str, str] = {}
    for tool, fields in cast("dict[Any, Any]", given).items():
        if not isinstance(tool, str) or not isinstance(fields, dict):
            raise ValueError(f"{tool}: expected fields")
        patterns[tool] = tuple(_field(tool, name, said, types) for name, said in cast("dict[Any, Any]", fields).items())
    return Projections(patterns)


def _field(tool: str, name: Any, said: Any, types: dict[str, str]) -> ProjectedField:
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise ValueError(f"{tool}: {name!r} is not a name that Cedar knows")
    given = cast("dict[Any, Any]", said) if isinstance(said, dict) else {"type": said}
    if not given.keys() <= {"type", "from"} or given.get("type") not in _READERS:
        raise ValueError(f"{tool}.{name}: expected one of {', '.join(_READERS)}, or {{from: …, type: …}}")
    kind = cast("str", given["type"])
    if types.setdefault(name, _CEDAR[kind]) != _CEDAR[kind]:
        raise ValueError(f"{tool}.{name}: {name} has another type elsewhere; give it a name of its own")
    return ProjectedField(name, tuple(str(given.get("from", name)).split(".")), kind)


# ---- the types ----------------------------------------------------------------------------------------------------


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return unicodedata.normalize("NFC", value)


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(value)
    return tuple(sorted({_string(each) for each in cast("list[Any]", value)}))


def _long(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a schema's integer may be written 5.0
    if type(value) is not int or not -_I64 <= value < _I64:
        raise ValueError(value)
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _path(value: Any) -> str:
    """The path that the strictest reader could take it for: decoded, one kind of slash, no dot segments."""
    text = _string(value)
    for _ in range(_DECODINGS):
        text, before = unicodedata.normalize("NFKC", unquote(text, errors="strict")).replace("\\", "/"), text
        if text == before:
            break
    else:
        raise ValueError("encoded too often")
    if not text.isprintable():
        raise ValueError("control characters")
    plain = posixpath.normpath(text) if text else ""
    # Two leading slashes mean something else to POSIX, and nothing to anybody here.
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain


_READERS: Final[Mapping[str, Callable[[Any], Value]]] = {
    "String": _string,
    "Strings": _strings,
    "Long": _long,
    "Bool": _bool,
    "Path": _path,
}
_CEDAR: Final = {"String": "String", "Strings": "Set<String>", "Long": "Long", "Bool": "Bool", "Path": "String"}
