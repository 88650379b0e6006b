"""The parts of a schema that flattening looks at, whatever a backend wrote in their place."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast
from urllib.parse import unquote

from gateway.contract import Json

REMOVED: Final = frozenset({"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
MAX_NESTING: Final = 16


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def values_of(definition: Any) -> list[Any] | None:
    if not isinstance(definition, dict):
        return None
    definition = cast("Json", definition)
    if "const" in definition:
        return [definition["const"]]
    return as_list(definition["enum"]) if isinstance(definition.get("enum"), list) else None


def takes_objects(branch: Any) -> bool:
    kinds = cast("Json", branch).get("type", "object") if isinstance(branch, dict) else "object"
    return branch is not False and (kinds == "object" or (isinstance(kinds, list) and "object" in kinds))


def target_of(ref: str, root: Json) -> Json | None:
    """Where a local pointer leads; None when it is of another kind."""
    place: Any = root
    if ref != "#":
        if not ref.startswith("#/"):
            return None
        for part in unquote(ref[2:]).split("/"):
            place = as_dict(place).get(part.replace("~1", "/").replace("~0", "~"))
    return cast("Json", place) if isinstance(place, dict) else None


def resolved(schema: Any, root: Json) -> Json:
    for _ in range(MAX_NESTING):
        ref: Any = as_dict(schema).get("$ref")
        if not isinstance(ref, str) or len(as_dict(schema)) > 1:
            break
        schema = target_of(ref, root)
    return as_dict(schema)


def portable(schema: Json) -> bool:
    """Whether nothing refers to, or depends on, the place of what flattening would remove."""
    for place in _everything(schema.items()):
        ref = place.get("$ref")
        if isinstance(ref, str) and ref[2:].split("/")[0] in REMOVED:
            return False
    gone = [(key, value) for key, value in schema.items() if key in REMOVED]
    return not any({"$id", "$anchor", "$dynamicAnchor"} & place.keys() for place in _everything(gone))


def _everything(entries: Iterable[tuple[str, Any]]) -> Iterator[Json]:
    waiting: list[Any] = [value for _, value in entries]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield cast("Json", value)
            waiting += cast("Json", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
