"""Turns validation errors into lines for operators: position, setting, expected value."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.settings.backends import KINDS
from gateway.settings.merge import MergedValues
from gateway.settings.settings import Settings
from gateway.settings.values import SettingPath, dotted_path, suggest

_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "is required",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "string_too_short": "must not be empty",
    "path_type": "expected a path",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "needs at least one entry",
    "ip_any_network": "expected a network such as 10.0.0.0/8",
}


def explain(error: ErrorDetails, merged: MergedValues) -> Iterator[str]:
    """The lines of one validation error."""
    key_path = error["loc"]
    if error["type"] == "problems":
        for below, message in error["ctx"]["problems"]:  # pyright: ignore[reportTypedDictNotRequiredAccess]
            yield _line((*key_path, *below), message, merged)
    elif error["type"] == "extra_forbidden":
        yield _line(
            key_path,
            f"unknown key{_other_kinds_hint(key_path) or suggest(str(key_path[-1]), _known_keys(key_path))}",
            merged,
        )
    elif error["type"] != "default_factory_not_called":  # the value it depends on is reported separately
        yield _line(key_path, _EXPECTED.get(error["type"]) or _reword(error["msg"]), merged)


def _line(key_path: SettingPath, message: str, merged: MergedValues) -> str:
    key_path = tuple(part for part in _without_kind(key_path) if part != "[key]")
    if key_path[2:4] == ("tools", "rules") and not _is_written(merged, key_path[:4]):
        key_path = (*key_path[:3], *key_path[4:])  # the rules were written as the value of `tools` itself
    return f"{merged.origin(key_path)}: {dotted_path(key_path)}: {message}"


def _is_written(merged: MergedValues, key_path: SettingPath) -> bool:
    return any(known[: len(key_path)] == key_path for known in merged.origins)


def _without_kind(key_path: SettingPath) -> SettingPath:
    """Remove the backend kind that pydantic inserts into the path."""
    return (
        (*key_path[:2], *key_path[3:])
        if key_path[0] == "backends" and key_path[2:3] and key_path[2] in KINDS and len(key_path) > 3
        else key_path
    )


def _other_kinds_hint(key_path: SettingPath) -> str | None:
    """Hint for a key that belongs to another kind of backend, such as `options`."""
    if key_path[0] != "backends" or len(key_path) != 4 or key_path[2] not in KINDS:
        return None
    kinds = [kind for kind, model in KINDS.items() if key_path[3] in model.model_fields]
    return f"; only backends with {' or '.join(kinds)} have it" if kinds else None


def _known_keys(key_path: SettingPath) -> list[str]:
    """The valid keys at the position of an unknown one."""
    models: list[type[BaseModel]] = [Settings]
    for part in key_path[:-1]:
        kind = KINDS.get(str(part)) if len(models) > 1 else None
        below = [model.model_fields[str(part)].annotation for model in models if part in model.model_fields]
        models = [kind] if kind else [found for annotation in below for found in _models(annotation)] or models
    return [name for model in models for name in model.model_fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _reword(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be ", "expected ")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )
