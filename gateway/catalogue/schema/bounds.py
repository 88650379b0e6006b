"""How large and deep a schema, or any other object a backend lists, may be before it is looked at."""

from typing import Any, Final, cast

import msgspec

from gateway.contract import Json

MAX_BYTES: Final = 64 * 1024
MAX_JSON_DEPTH: Final = 64


class BadSchema(ValueError):
    """A schema that is not compiled; the text says why, in words for whoever runs the backend."""


def bound(value: object, *, limit: int = MAX_BYTES, what: str = "the schema") -> bytes:
    """The object encoded. Raises `BadSchema` for what is no object, or is too large or too deep to look at."""
    if not isinstance(value, dict):
        raise BadSchema(f"{what} is not an object")
    level: list[Any] = [value]
    seen = depth = 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if depth > MAX_JSON_DEPTH:
            raise BadSchema(f"{what} is nested over {MAX_JSON_DEPTH} deep")
        # Every value takes a byte at least; counted first, as one object may be held in many places.
        if seen > limit:
            raise BadSchema(f"{what} is over {limit} bytes")
        level = [below for held in level for below in inside(held)]
    try:
        encoded = msgspec.json.encode(cast("Json", value))
    except (ValueError, TypeError, OverflowError) as exc:
        raise BadSchema(f"{what} is not JSON") from exc
    if len(encoded) > limit:
        raise BadSchema(f"{what} is over {limit} bytes")
    return encoded


def inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("Json", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def clip(value: object, limit: int = 80) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
