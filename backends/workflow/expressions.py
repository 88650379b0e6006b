"""Evaluates `when` conditions and resolves `${steps.<id>.output.<path>}` references in step arguments."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from backends.workflow.definition import StepCondition
from gateway.contract import Json
from gateway.errors import Fault, Kind

_REFERENCE: Final = re.compile(r"\$\{steps\.([^.{}]+)\.output((?:\.[^.{}]+)*)\}")

_ITEM_REFERENCE: Final = re.compile(r"\$\{(item|index)((?:\.[^.{}]+)*)\}")
_INDEXED: Final = re.compile(r"([^\[\]]+)((?:\[\d+\])+)")


class PathNotFound(LookupError):
    """The value has no such path."""


def unmet_reason(condition: StepCondition, outputs: Mapping[str, Any]) -> str | None:
    """Return why the condition is not met, or None if it is. It is not met either if the step was skipped or the path
    does not exist."""
    if condition.step_id not in outputs:
        return "condition not met"
    try:
        found = get_path(outputs[condition.step_id], condition.path)
    except PathNotFound:
        return f"condition not met: step {condition.step_id!r} has no output at {condition.path!r}"
    return None if _json_equal(condition.equals, found) else "condition not met"


def is_met(condition: StepCondition, outputs: Mapping[str, Any]) -> bool:
    return unmet_reason(condition, outputs) is None


def get_path(value: Any, path: str) -> Any:
    """Return the value at a path of object keys and array indexes: `items.0.id` or `items[0].id`. The empty path is
    the value itself.

    Raises `PathNotFound`.
    """
    for part in path.split(".") if path else ():
        indexed = _INDEXED.fullmatch(part)
        if indexed is not None and not (isinstance(value, dict) and part in value):
            keys = [indexed[1], *re.findall(r"\d+", indexed[2])]
        else:
            keys = [part]  # brackets may belong to a key
        for key in keys:
            value = _get(value, key, path)
    return cast("Any", value)


def _get(value: Any, key: str, path: str) -> Any:
    if isinstance(value, dict) and key in value:
        return cast("Json", value)[key]
    if isinstance(value, list) and key.isascii() and key.isdigit():
        items = cast("list[Any]", value)
        if int(key[:9]) < len(items):
            return items[int(key[:9])]
    raise PathNotFound(path)


def resolve_references(arguments: Json, outputs: Mapping[str, Any], max_bytes: int) -> Json:
    """Replace every reference in the arguments. A reference that is the whole string keeps the type of its value.

    Raises `Fault`: INVALID_INPUT for a reference that does not resolve, TOO_LARGE when the inserted values exceed
    `max_bytes`. The size is checked before the result is built.
    """
    resolver = _ReferenceResolver(outputs, max_bytes)
    return {key: resolver.resolve(value) for key, value in arguments.items()}


def resolve_item(arguments: Json, item: Any, index: int) -> Json:
    """Replace `${item}`, `${item.<path>}` and `${index}`. Raises `Fault(INVALID_INPUT)` if the item lacks a path."""
    return {key: _resolve_item(value, item, index) for key, value in arguments.items()}


def _resolve_item(value: Any, item: Any, index: int) -> Any:
    if isinstance(value, list):
        return [_resolve_item(each, item, index) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _resolve_item(each, item, index) for key, each in cast("Json", value).items()}
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> Any:
        try:
            return get_path(item if match[1] == "item" else index, match[2].removeprefix("."))
        except PathNotFound as exc:
            details = {"validation_path": match[0][:_MAX_SHOWN], "validation_rule": "reference", "index": index}
            message = f"{match[0][:_MAX_SHOWN]} does not resolve to a value in item {index}"
            raise Fault(Kind.INVALID_INPUT, message, details=details) from exc

    def as_text(match: re.Match[str]) -> str:
        found = look_up(match)
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    whole = _ITEM_REFERENCE.fullmatch(value)
    return look_up(whole) if whole is not None else _ITEM_REFERENCE.sub(as_text, value)


class _ReferenceResolver:
    """Resolves the references of one step and counts the inserted bytes: a short text can repeat a large output."""

    def __init__(self, outputs: Mapping[str, Any], max_bytes: int) -> None:
        self._outputs = outputs
        self._max_bytes = max_bytes
        self._bytes = 0
        self._loaded: dict[str, Any] = {}
        self._resolved: dict[str, tuple[Any, str, int]] = {}

    def resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._resolve_text(value)
        if isinstance(value, list):
            return [self.resolve(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self.resolve(each) for key, each in cast("Json", value).items()}
        return value

    def _resolve_text(self, text: str) -> Any:
        if (whole := _REFERENCE.fullmatch(text)) is not None:
            return self._substitute(whole)[0]
        return _REFERENCE.sub(lambda match: self._substitute(match)[1], text)

    def _substitute(self, match: re.Match[str]) -> tuple[Any, str]:
        """Return the referenced value and its text form. Every occurrence counts towards the size limit."""
        found = self._resolved.get(match[0])
        if found is None:
            found = self._resolved[match[0]] = self._look_up(match)
        value, text, size = found
        self._bytes += size
        if self._bytes > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                f"The outputs of earlier steps make these arguments larger than {self._max_bytes} bytes.",
                details={"payload_bytes": self._bytes, "max_bytes": self._max_bytes},
                suggested_fix="Reference a smaller part of the output, or reduce the output of the earlier step.",
            )
        return value, text

    def _look_up(self, match: re.Match[str]) -> tuple[Any, str, int]:
        step_id, path = match[1], match[2].removeprefix(".")
        try:
            if step_id not in self._loaded:
                self._loaded[step_id] = self._outputs[step_id]
            value = get_path(self._loaded[step_id], path)
        except (KeyError, PathNotFound) as exc:
            raise Fault(
                Kind.INVALID_INPUT,
                f"{match[0][:_MAX_SHOWN]} does not resolve to a value",
                details={"validation_path": match[0][:_MAX_SHOWN], "validation_rule": "reference"},
            ) from exc
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return value, text, len(text.encode(errors="surrogatepass"))


_MAX_SHOWN: Final = 500


def _json_equal(expected: Any, actual: Any) -> bool:
    """Compare as JSON values: 1.0 equals 1, but true does not. Stops at the first difference."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, list) and isinstance(actual, list):
        left, right = cast("list[Any]", expected), cast("list[Any]", actual)
        return len(left) == len(right) and all(map(_json_equal, left, right))
    if isinstance(expected, dict) and isinstance(actual, dict):
        left, right = cast("Json", expected), cast("Json", actual)
        return left.keys() == right.keys() and all(_json_equal(each, right[key]) for key, each in left.items())
    return expected == actual
