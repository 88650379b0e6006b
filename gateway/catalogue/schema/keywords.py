"""JSON Schema vocabulary: supported dialects, keywords that contain subschemas, and bounds on size and depth.

The bounds also apply to the other objects that a backend lists.
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

IN_PLACE_KEYWORDS: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
NAMED_CHILD_KEYWORDS: Final = ("properties", "prefixItems")

CHILD_KEYWORDS: Final = (
    *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "additionalItems", "unevaluatedItems", "contains"),
)

_DEFINITION_KEYWORDS: Final = ("$defs", "definitions", "contentSchema")
MAP_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
SUBSCHEMA_KEYWORDS: Final = (*IN_PLACE_KEYWORDS, *NAMED_CHILD_KEYWORDS, *CHILD_KEYWORDS, *_DEFINITION_KEYWORDS)
REF_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def validator_of(name: object) -> type[rs.Validator] | None:
    return DIALECTS.get(name.removesuffix("#")) if isinstance(name, str) else None


def subschemas(schema: Json, keyword: str) -> Iterator[tuple[str | int, Json]]:
    """The object subschemas of a keyword, each with its name or index."""
    value = schema.get(keyword)
    if isinstance(value, list):
        entries = enumerate(cast("list[Any]", value))
    elif isinstance(value, dict):
        entries = cast("Json", value).items() if keyword in MAP_KEYWORDS else [("", cast("Any", value))]
    else:
        return
    for name, sub in entries:
        if isinstance(sub, dict):
            yield name, cast("Json", sub)


def get_child(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return cast("Json", value).get(part)
    if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 6:
        items = cast("list[Any]", value)
        return items[int(part)] if int(part) < len(items) else None
    return None


MAX_BYTES: Final = 64 * 1024
MAX_JSON_DEPTH: Final = 64


class InvalidSchema(ValueError):
    """A schema that cannot be compiled. The message gives the reason to the operator of the backend."""


def encode_bounded(value: object, *, limit: int = MAX_BYTES, label: str = "the schema") -> bytes:
    """Encode an object. Raises `InvalidSchema` if it is not an object, or too large or too deep."""
    if not isinstance(value, dict):
        raise InvalidSchema(f"{label} is not an object")
    level: list[Any] = [value]
    seen = depth = 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if depth > MAX_JSON_DEPTH:
            raise InvalidSchema(f"{label} is nested over {MAX_JSON_DEPTH} deep")
        # Every value takes at least one byte. Count before encoding: one object may be referenced in many places.
        if seen > limit:
            raise InvalidSchema(f"{label} is over {limit} bytes")
        level = [below for item in level for below in children(item)]
    try:
        encoded = msgspec.json.encode(cast("Json", value))
    except (ValueError, TypeError, OverflowError) as exc:
        raise InvalidSchema(f"{label} is not JSON") from exc
    if len(encoded) > limit:
        raise InvalidSchema(f"{label} is over {limit} bytes")
    return encoded


def children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Json", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def truncate(value: object, limit: int = 80) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
