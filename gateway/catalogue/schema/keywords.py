"""Where JSON Schema has schemas inside a schema, and which dialects of it are known."""

from collections.abc import Iterator
from typing import Any, Final, cast

import jsonschema_rs as rs

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
