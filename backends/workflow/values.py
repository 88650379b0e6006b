"""What steps take from earlier ones: `when` conditions and `${steps.<id>.output.<path>}` in arguments."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from backends.workflow.definition import When
from gateway.contract import Json
from gateway.errors import Fault, Kind

_REFERENCE: Final = re.compile(r"\$\{steps\.([^.{}]+)\.output((?:\.[^.{}]+)*)\}")


class Missing(LookupError):
    """Nothing is at that path."""


def holds(when: When, outputs: Mapping[str, Any]) -> bool:
    """Whether the condition is met; a step that was skipped, or a path that leads nowhere, meets none."""
    if when.step_id not in outputs:
        return False
    try:
        found = at_path(outputs[when.step_id], when.path)
    except Missing:
        return False
    return _canonical(found) == _canonical(when.equals)


def at_path(value: Any, path: str) -> Any:
    """Object keys only, separated by dots; the empty path is the value itself. Raises `Missing`."""
    for key in path.split(".") if path else ():
        if not isinstance(value, dict) or key not in value:
            raise Missing(path)
        value = cast("Json", value)[key]
    return value


def filled(arguments: Json, outputs: Mapping[str, Any]) -> Json:
    """The arguments with every reference replaced; one that is the whole string keeps the value's type.

    Raises `Fault(INVALID_INPUT)` for a reference that leads nowhere.
    """
    return {key: _fill(value, outputs) for key, value in arguments.items()}


def _fill(value: Any, outputs: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _fill_text(value, outputs)
    if isinstance(value, list):
        return [_fill(each, outputs) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _fill(each, outputs) for key, each in cast("Json", value).items()}
    return value


def _fill_text(text: str, outputs: Mapping[str, Any]) -> Any:
    if (whole := _REFERENCE.fullmatch(text)) is not None:
        return _resolve(whole, outputs)
    return _REFERENCE.sub(lambda match: _as_text(_resolve(match, outputs)), text)


def _resolve(match: re.Match[str], outputs: Mapping[str, Any]) -> Any:
    step_id, path = match[1], match[2].removeprefix(".")
    try:
        return at_path(outputs[step_id], path)
    except (KeyError, Missing) as exc:
        raise Fault(
            Kind.INVALID_INPUT,
            f"{match[0]} leads to nothing",
            details={"validation_path": match[0], "validation_rule": "reference"},
        ) from exc


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _canonical(value: Any) -> str:
    return json.dumps(_numbers_alike(value), sort_keys=True, separators=(",", ":"))


def _numbers_alike(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers_alike(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _numbers_alike(each) for key, each in cast("Json", value).items()}
    return value
