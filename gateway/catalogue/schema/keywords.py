"""Where JSON Schema has schemas inside a schema, and which dialects of it are known.

How large and deep a schema, or any other object a backend lists, may be before it is looked at.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

import jsonschema_rs as rs
import msgspec

from gateway.contract import Json

DIALECTS: Final = {
    "http://json-schema.org/draft-07/schema": rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema": rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": rs.Draft202012Validator,
}

IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")

NAMED: Final = ("properties", "prefixItems")

BELOW: Final = (
    *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)

_ASIDE: Final = ("$defs", "definitions", "contentSchema")

MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})

POSITIONS: Final = (*IN_PLACE, *NAMED, *BELOW, *_ASIDE)

REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def validator_of(name: object) -> type[rs.Validator] | None:
    return DIALECTS.get(name.removesuffix("#")) if isinstance(name, str) else None


def subschemas(schema: Json, keyword: str) -> Iterator[tuple[str | int, Json]]:
    """The object schemas a keyword holds, each with its name or index."""
    value = schema.get(keyword)
    if isinstance(value, list):
        entries = enumerate(cast("list[Any]", value))
    elif isinstance(value, dict):
        entries = cast("Json", value).items() if keyword in MAPS else [("", cast("Any", value))]
    else:
        return
    for name, sub in entries:
        if isinstance(sub, dict):
            yield name, cast("Json", sub)


def step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return cast("Json", value).get(part)
    if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 6:
        items = cast("list[Any]", value)
        return items[int(part)] if int(part) < len(items) else None
    return None


MAX_BYTES: Final = 64 * 1024

MAX_JSON_DEPTH: Final = 64


class InvalidSchema(ValueError):
    """A schema that is not compiled; the text says why, in words for whoever runs the backend."""


def bound(value: object, *, limit: int = MAX_BYTES, what: str = "the schema") -> bytes:
    """The object encoded. Raises `BadSchema` for what is no object, or is too large or too deep to look at."""
    if not isinstance(value, dict):
        raise InvalidSchema(f"{what} is not an object")
    level: list[Any] = [value]
    seen = depth = 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if depth > MAX_JSON_DEPTH:
            raise InvalidSchema(f"{what} is nested over {MAX_JSON_DEPTH} deep")
        # Every value takes a byte at least; counted first, as one object may be held in many places.
        if seen > limit:
            raise InvalidSchema(f"{what} is over {limit} bytes")
        level = [below for held in level for below in inside(held)]
    try:
        encoded = msgspec.json.encode(cast("Json", value))
    except (ValueError, TypeError, OverflowError) as exc:
        raise InvalidSchema(f"{what} is not JSON") from exc
    if len(encoded) > limit:
        raise InvalidSchema(f"{what} is over {limit} bytes")
    return encoded


def inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Json", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def clip(value: object, limit: int = 80) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
