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
    return _alike(when.equals, found)


def at_path(value: Any, path: str) -> Any:
    """Object keys only, separated by dots; the empty path is the value itself. Raises `Missing`."""
    for key in path.split(".") if path else ():
        if not isinstance(value, dict) or key not in value:
            raise Missing(path)
        value = cast("Json", value)[key]
    return value


def filled(arguments: Json, outputs: Mapping[str, Any], max_bytes: int) -> Json:
    """The arguments with every reference replaced; one that is the whole string keeps the value's type.

    Raises `Fault`: INVALID_INPUT for a reference that leads nowhere, TOO_LARGE as soon as what is put in has more than
    `max_bytes`, before any of it is put together.
    """
    filling = _Filling(outputs, max_bytes)
    return {key: filling.fill(value) for key, value in arguments.items()}


class _Filling:
    """One step's arguments as they are filled: a short text may name a long output thousands of times."""

    def __init__(self, outputs: Mapping[str, Any], max_bytes: int) -> None:
        self._outputs = outputs
        self._max_bytes = max_bytes
        self._bytes = 0
        self._given: dict[str, Any] = {}
        self._found: dict[str, tuple[Any, str, int]] = {}

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.fill(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self.fill(each) for key, each in cast("Json", value).items()}
        return value

    def _text(self, text: str) -> Any:
        if (whole := _REFERENCE.fullmatch(text)) is not None:
            return self._resolve(whole)[0]
        return _REFERENCE.sub(lambda match: self._resolve(match)[1], text)

    def _resolve(self, match: re.Match[str]) -> tuple[Any, str]:
        """What it stands for, as value and as text; counted each time it is named."""
        found = self._found.get(match[0])
        if found is None:
            found = self._found[match[0]] = self._look_up(match)
        value, text, size = found
        self._bytes += size
        if self._bytes > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                f"What earlier steps gave makes these arguments larger than {self._max_bytes} bytes.",
                details={"payload_bytes": self._bytes, "max_bytes": self._max_bytes},
                suggested_fix="Refer to a part of the output, less often, or have the earlier step give less.",
            )
        return value, text

    def _look_up(self, match: re.Match[str]) -> tuple[Any, str, int]:
        step_id, path = match[1], match[2].removeprefix(".")
        try:
            if step_id not in self._given:
                self._given[step_id] = self._outputs[step_id]
            value = at_path(self._given[step_id], path)
        except (KeyError, Missing) as exc:
            raise Fault(
                Kind.INVALID_INPUT,
                f"{match[0][:_SHOWN]} leads to nothing",
                details={"validation_path": match[0][:_SHOWN], "validation_rule": "reference"},
            ) from exc
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return value, text, len(text.encode(errors="surrogatepass"))


_SHOWN: Final = 500


def _alike(wanted: Any, found: Any) -> bool:
    """Equal as JSON, which has one kind of number: 1.0 is 1. No further than the first difference, so a large output
    costs no more than what it is compared with."""
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, list) and isinstance(found, list):
        ours, theirs = cast("list[Any]", wanted), cast("list[Any]", found)
        return len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    if isinstance(wanted, dict) and isinstance(found, dict):
        mine, given = cast("Json", wanted), cast("Json", found)
        return mine.keys() == given.keys() and all(_alike(each, given[key]) for key, each in mine.items())
    return wanted == found
