"""Projection of call arguments for policy: each projected argument has a name, a type and a canonical form."""

import posixpath
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, cast
from urllib.parse import unquote

from gateway.contract import Json

Value = str | int | bool | tuple[str, ...]
_INT64_LIMIT: Final = 2**63
_MAX_DECODINGS: Final = 5


class UnreadableArgument(ValueError):
    """An argument does not have the type that the projection declares; the call is denied."""

    def __init__(self, field: str) -> None:
        super().__init__(f"The argument '{field}' does not have the type that policy requires.")


@dataclass(frozen=True, slots=True)
class ProjectedField:
    """One projected argument: its name in policy, its path in the arguments, and its type."""

    name: str
    path: tuple[str, ...]
    type: str

    def read(self, arguments: Json) -> Value | None:
        """Return the value; None if absent or null. Raises `UnreadableArgument` if it has another type."""
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
    """The projected arguments of one tool, in a fixed order."""

    def __init__(self, fields: tuple[ProjectedField, ...]) -> None:
        self._fields = fields

    def read(self, arguments: Json) -> tuple[tuple[str, Value], ...]:
        """Return the projected arguments: hashable, and equal for equivalent spellings."""
        read = ((field.name, field.read(arguments)) for field in self._fields)
        return tuple((name, value) for name, value in read if value is not None)


class Projections:
    """The projections of one `args.yaml`."""

    def __init__(self, patterns: Mapping[str, tuple[ProjectedField, ...]]) -> None:
        self._patterns = patterns

    def for_tool(self, tool: str) -> Projection | None:
        """Return the projection of a tool from all patterns that match its canonical id; None if none matches."""
        found = {
            field.name: field
            for pattern, fields in self._patterns.items()
            if pattern == tool or fnmatchcase(tool, pattern)
            for field in fields
        }
        return Projection(tuple(found.values())) if found else None

    def schema(self) -> str:
        """Return the Cedar type of `context.args`."""
        types = {field.name: _CEDAR_TYPES[field.type] for fields in self._patterns.values() for field in fields}
        return f"type Args = {{ {', '.join(f'{name}?: {kind}' for name, kind in sorted(types.items()))} }};"


def parse_projections(document: Any) -> Projections:
    """Parse the content of `args.yaml`. Raises `ValueError` with the first problem."""
    if document is None:
        return Projections({})
    if not isinstance(document, dict):
        raise ValueError("expected a mapping of tools to fields")
    patterns: dict[str, tuple[ProjectedField, ...]] = {}
    types: dict[str, str] = {}
    for tool, fields in cast("dict[Any, Any]", document).items():
        if not isinstance(tool, str) or not isinstance(fields, dict):
            raise ValueError(f"{tool}: expected a mapping of fields")
        patterns[tool] = tuple(
            _field(tool, name, declaration, types) for name, declaration in cast("dict[Any, Any]", fields).items()
        )
    return Projections(patterns)


def _field(tool: str, name: Any, declaration: Any, types: dict[str, str]) -> ProjectedField:
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise ValueError(f"{tool}: {name!r} is not a valid Cedar identifier")
    options = cast("dict[Any, Any]", declaration) if isinstance(declaration, dict) else {"type": declaration}
    if not options.keys() <= {"type", "from"} or options.get("type") not in _READERS:
        raise ValueError(f"{tool}.{name}: expected one of {', '.join(_READERS)}, or {{from: …, type: …}}")
    kind = cast("str", options["type"])
    if types.setdefault(name, _CEDAR_TYPES[kind]) != _CEDAR_TYPES[kind]:
        raise ValueError(f"{tool}.{name}: {name} has another type in another entry; use a different name")
    return ProjectedField(name, tuple(str(options.get("from", name)).split(".")), kind)


# ---- types ----


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
        value = int(value)  # JSON Schema accepts 5.0 as an integer
    if type(value) is not int or not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise ValueError(value)
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _path(value: Any) -> str:
    """Return the canonical path: percent-decoded, with forward slashes only and without dot segments."""
    text = _string(value)
    for _ in range(_MAX_DECODINGS):
        text, before = unicodedata.normalize("NFKC", unquote(text, errors="strict")).replace("\\", "/"), text
        if text == before:
            break
    else:
        raise ValueError("too many levels of encoding")
    if not text.isprintable():
        raise ValueError("control characters")
    plain = posixpath.normpath(text) if text else ""
    # `normpath` keeps two leading slashes, which POSIX reserves.
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain


_READERS: Final[Mapping[str, Callable[[Any], Value]]] = {
    "String": _string,
    "Strings": _strings,
    "Long": _long,
    "Bool": _bool,
    "Path": _path,
}
_CEDAR_TYPES: Final = {"String": "String", "Strings": "Set<String>", "Long": "Long", "Bool": "Bool", "Path": "String"}
