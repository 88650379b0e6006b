"""Reads the parameters of an operation, and decides which of them are arguments of the tool."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.contract import Json
from gateway.upstream.openapi.document import Document, DocumentError
from gateway.upstream.openapi.operation import BODY, RESERVED_HEADERS, Location, Parameter

MAX_PARAMETERS: Final = 200
_LOCATIONS: Final[tuple[Location, ...]] = ("path", "query", "header", "cookie")
_STYLES: Final[dict[Location, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each location; the first is the default."""

_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_COOKIE_NAME: Final = _HEADER_NAME
_MAX_ARGUMENT: Final = 64


@dataclass(frozen=True, slots=True)
class OperationParameters:
    """The parameters of one operation that are arguments, with their schemas by argument."""

    parameters: tuple[Parameter, ...]
    schemas: Json
    required: tuple[str, ...]
    reserved_query: frozenset[str]


def read_parameters(
    document: Document,
    path: str,
    item: Json,
    operation: Json,
    secured: frozenset[tuple[str, str]],
    fixed_headers: Sequence[str],
) -> OperationParameters:
    """Read the parameters of a path item and its operation. Raises `DocumentError`."""
    fixed = {name.lower() for name in fixed_headers}
    parameters: list[Parameter] = []
    schemas: Json = {}
    required: list[str] = []
    for location, name, definition in _ordered(document, path, item, operation):
        if is_reserved(location, name, secured, fixed):
            continue
        argument = _argument_name(location, name, schemas)
        schema, as_json = _schema_of(document, definition)
        parameters.append(_parameter(location, name, argument, definition, as_json=as_json))
        text = definition.get("description")
        schemas[argument] = {**schema, "description": text} if isinstance(text, str) else schema
        if location == "path" or definition.get("required") is True:
            required.append(argument)
    query = {each.name for each in parameters if each.location == "query"}
    keys = {name for location, name in secured if location == "query"}
    return OperationParameters(tuple(parameters), schemas, tuple(required), frozenset(query | keys))


def is_reserved(location: Location, name: str, secured: frozenset[tuple[str, str]], fixed: set[str]) -> bool:
    """Whether a parameter is never an argument: a credential, or a header that the gateway or the entry sets."""
    lower = name.lower()
    if (location, lower) in secured:
        return True
    return location == "header" and (lower in RESERVED_HEADERS or lower in fixed)


def _ordered(document: Document, path: str, item: Json, operation: Json) -> Iterator[tuple[Location, str, Json]]:
    """All parameters by location, those of the operation over those of its path."""
    found: dict[tuple[Location, str], Json] = {}
    for holder in (item, operation):
        entries: Any = holder.get("parameters")
        for value in cast("list[Any]", entries) if isinstance(entries, list) else []:
            definition = document.resolve(value)
            location, name = definition.get("in"), definition.get("name")
            if location not in _LOCATIONS or not isinstance(name, str) or not name:
                raise DocumentError("a parameter has no name, or its location is not path, query, header or cookie")
            found[location, name] = definition
    if len(found) > MAX_PARAMETERS:
        raise DocumentError(f"it has over {MAX_PARAMETERS} parameters")
    templated = list(dict.fromkeys(_TEMPLATE.findall(path)))
    for location in _LOCATIONS:
        for (each, name), definition in found.items():
            if each == location and (location != "path" or name in templated):
                _check_name(location, name)
                yield location, name, definition
        if location == "path":
            for name in templated:
                if ("path", name) not in found:  # common in real documents
                    yield "path", name, {"schema": {"type": "string"}}


def _check_name(location: Location, name: str) -> None:
    if location == "header" and not _HEADER_NAME.fullmatch(name):
        raise DocumentError(f"{name[:40]!r} is not the name of a header")
    if location == "cookie" and not _COOKIE_NAME.fullmatch(name):
        raise DocumentError(f"{name[:40]!r} is not the name of a cookie")


def _argument_name(location: Location, name: str, taken: Json) -> str:
    """A name that model providers accept, unique in the tool."""
    base = _UNSAFE.sub("_", name).strip("_.-")[:_MAX_ARGUMENT] or "value"
    if base in taken or base == BODY:
        base = f"{location}_{base}"[:_MAX_ARGUMENT]
    argument, number = base, 2
    while argument in taken:
        argument, number = f"{base[: _MAX_ARGUMENT - 4]}_{number}", number + 1
    return argument


def _schema_of(document: Document, definition: Json) -> tuple[Json, bool]:
    """The schema of a parameter, and whether its value is sent as JSON text."""
    content = document.members(definition, "content")
    if content:
        media_type, value = next(iter(content.items()))
        schema = document.members(cast("Json", value), "schema") if isinstance(value, dict) else {}
        return dict(schema), "json" in media_type
    return dict(document.members(definition, "schema")), False


def _parameter(location: Location, name: str, argument: str, definition: Json, *, as_json: bool) -> Parameter:
    style = definition.get("style", _STYLES[location][0])
    if style not in _STYLES[location]:
        raise DocumentError(f"{name[:40]!r} has the style {str(style)[:20]!r}, which no {location} parameter has")
    explode = definition.get("explode")
    return Parameter(
        argument=argument,
        name=name,
        location=location,
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        allow_reserved=definition.get("allowReserved") is True,
        as_json=as_json,
    )
