"""Two definitions of one property, made one."""

from typing import Any, Final, cast

from gateway.catalogue.flatten.parts import as_list, values_of
from gateway.contract import Json

_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})
_MERGED: Final = _ANNOTATIONS | {"type", "const", "enum"}


def narrow(one: Any, other: Any) -> Any:
    """What both accept."""
    if one == other or _anything(other):
        return one
    if _anything(one):
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = cast("Json", one), cast("Json", other)
        shared = one.keys() & other.keys() - _ANNOTATIONS
        plain = other.keys() <= _MERGED or one.keys() <= _MERGED
        if plain and all(_same(one[key], other[key]) for key in shared):
            return other | one
        values, others = values_of(one), values_of(other)
        if values is not None and others is not None and one.keys() | other.keys() <= _MERGED:
            kept = [value for value in values if any(value == rest for rest in others)]
            dropped = {"const", *({"type"} & shared)}
            return {key: value for key, value in (other | one).items() if key not in dropped} | {"enum": kept}
    return {"allOf": [cast("Any", one), other]}


def widen(definitions: list[Any]) -> Any:
    """What any of them accepts."""
    spread = [part for definition in definitions for part in _alternatives(definition)]
    kinds: list[Any] = []
    for definition in spread:
        if definition is not False and not any(_same(_bare(definition), _bare(kind)) for kind in kinds):
            kinds.append(definition)
    if len(kinds) < 2:
        return kinds[0] if kinds else False
    listed = [values_of(kind) for kind in kinds]
    if any(values is None for values in listed):
        return {"anyOf": kinds}
    enum: list[Any] = []
    for value in (value for values in listed for value in values or ()):
        if not any(_same(value, known) for known in enum):
            enum.append(value)
    merged = {key: kind[key] for kind in reversed(kinds) for key in ("title", "description") if key in kind}
    types = [kind.get("type") for kind in kinds]
    if types[0] is not None and all(kind == types[0] for kind in types):
        merged["type"] = types[0]
    return merged | {"enum": enum}


def _alternatives(definition: Any) -> list[Any]:
    if isinstance(definition, dict) and definition.keys() == {"anyOf"}:
        return as_list(cast("Json", definition)["anyOf"])
    return [{} if definition is True else definition]


def _anything(definition: Any) -> bool:
    return any(isinstance(part, dict) and not _bare(part) for part in _alternatives(definition))


def _bare(definition: Any) -> Any:
    if not isinstance(definition, dict):
        return definition
    return {key: value for key, value in cast("Json", definition).items() if key not in _ANNOTATIONS}


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: in Python alone True is 1, also inside a list or an object."""
    return one == other and repr(one) == repr(other)
