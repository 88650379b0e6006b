"""Compiles a schema into an `ArgumentCheck`, cached by content.

A check first estimates the cost of the validation, then validates, and explains the error only if there is one.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, cast

import jsonschema_rs as rs
import msgspec

from gateway.catalogue.schema.cost import (
    BUDGET,
    MAX_ROOT_UNITS,
    SchemaSurvey,
    max_charge_by_depth,
    pattern_cost,
    remove_patterns,
)
from gateway.catalogue.schema.explain import invalid_input, rank, to_fault
from gateway.catalogue.schema.keywords import InvalidSchema, encode_bounded, truncate, validator_of
from gateway.contract import Json
from gateway.errors import Fault, Kind

_MAX_UNESTIMATED_UNITS: Final = 8
"""With at most this many units per value, even 1 MiB of arguments stays within the budget without an estimate."""
_MAX_EXPLAINED_SIZE: Final = 5_000
"""Largest arguments for which all errors are listed. That costs a thousand times as much as validation alone."""


class ArgumentCheck:
    """A compiled schema. Raises `Fault` with an explanation for arguments that do not conform."""

    def __init__(
        self,
        prefix: str,
        schema: Json,
        exact: rs.Validator,
        loose: rs.Validator,
        units: list[int],
        per_character: list[int],
        branching: bool,
    ) -> None:
        self._prefix = prefix
        self._schema = schema
        self._exact = exact
        self._loose = loose
        self._units = units
        self._per_character = per_character
        self._peak = max(units)
        self._max_charge = max(*units, *per_character)
        self._needs_estimate = self._peak > _MAX_UNESTIMATED_UNITS or any(per_character)
        self._branching = branching

    def __call__(self, arguments: Json) -> None:
        try:
            validator = self._select_validator(arguments) if self._needs_estimate else self._exact
            valid = validator.is_valid(arguments)
        except (ValueError, TypeError) as exc:
            raise invalid_input(self._prefix, "type", "is not JSON") from exc
        if not valid:
            raise self._explain(validator, arguments)

    def _select_validator(self, arguments: Json) -> rs.Validator:
        size = len(msgspec.json.encode(arguments))
        # Upper bound of `_measure`: every byte is a value, or all bytes are one number.
        if (6 * size + (size // 77) ** 2) * self._max_charge <= BUDGET:
            return self._exact
        work = scan_work = 0
        for depth, level in enumerate(_levels_of(arguments)):
            units, per_character = _charge_at(self._units, depth), _charge_at(self._per_character, depth)
            if not units and not per_character:
                break
            work += len(level) * units
            if work <= BUDGET:
                extra, text = _measure(level)
                work += extra * units
                scan_work += text * per_character
            if work > BUDGET:
                raise Fault(
                    Kind.TOO_LARGE,
                    f"{self._prefix}: too large or too deep to check against the tool's input schema.",
                    details={"validation_path": self._prefix, "validation_rule": "complexity"},
                    suggested_fix="Send smaller arguments.",
                )
        return self._loose if scan_work > BUDGET else self._exact

    def _explain(self, validator: rs.Validator, arguments: Json) -> Fault:
        if self._size(arguments) * self._peak <= _MAX_EXPLAINED_SIZE:
            if (first := min(validator.iter_errors(arguments), key=rank, default=None)) is not None:
                return to_fault(first, self._prefix, self._schema)
        elif not self._branching:
            try:
                validator.validate(arguments)
            except rs.ValidationError as error:
                return to_fault(error, self._prefix, self._schema)
        return invalid_input(
            self._prefix, "schema", "does not match the tool's input schema, and is too large to report where"
        )

    def _size(self, arguments: Json) -> int:
        size = 0
        for level in _levels_of(arguments):
            size += len(level) + sum(len(value) for value in level if isinstance(value, str)) // 4096
            if size > _MAX_EXPLAINED_SIZE:
                break
        return size


def _levels_of(arguments: Json) -> Iterator[list[Any]]:
    """The values at each depth. Keys count as values too, because both may be checked."""
    level: list[Any] = [arguments]
    while level:
        yield level
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += cast("Json", value)
                below += cast("Json", value).values()
            elif isinstance(value, list):
                below += cast("list[Any]", value)
        level = below


def _measure(level: list[Any]) -> tuple[int, int]:
    """The number of extra values that long numbers count as, and the number of characters of text."""
    extra = per_character = 0
    for value in level:
        if isinstance(value, str):
            per_character += len(value)
        elif isinstance(value, int):
            extra += (value.bit_length() >> 8) ** 2
        elif isinstance(value, float) and not 1e-6 < abs(value) < 1e15:
            extra += 16
    return extra, per_character


def _charge_at(levels: list[int], depth: int) -> int:
    return levels[depth] if depth < len(levels) else levels[-1]


def compile_check(schema: Json, *, prefix: str = "input") -> Callable[[Json], None]:
    """A function that raises `Fault` for arguments that do not conform. Raises `InvalidSchema`."""
    return _compile_encoded(encode_bounded(schema), prefix)


@lru_cache(maxsize=1024)
def _compile_encoded(encoded: bytes, prefix: str) -> Callable[[Json], None]:
    """Cached by content, so that unchanged schemas are not compiled again."""
    schema: Json = msgspec.json.decode(encoded)
    survey = SchemaSurvey(schema)
    unsupported = {pattern for pattern in survey.patterns if pattern_cost(pattern) is None}
    exact = _build_validator(schema, unsupported)
    loose = _build_validator(schema, survey.patterns) if survey.patterns - unsupported else exact
    units, per_character = max_charge_by_depth(survey)
    if units[0] > MAX_ROOT_UNITS:
        raise InvalidSchema("too many subschemas apply to one value")
    return ArgumentCheck(prefix, schema, exact, loose, units, per_character, survey.branching)


def _build_validator(schema: Json, unsupported: set[str]) -> rs.Validator:
    kind = (
        validator_of(schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")) or rs.Draft202012Validator
    )
    try:
        return kind(
            remove_patterns(schema, unsupported) if unsupported else schema,
            validate_formats=False,
            pattern_options=rs.RegexOptions(size_limit=1 << 20),
            retriever=_reject_fetch,
        )
    except (ValueError, rs.ReferencingError) as exc:
        raise InvalidSchema(_reason(exc)) from exc


def _reject_fetch(uri: str) -> Json:
    raise ValueError(f"{uri} is a remote reference; remote references are not fetched")


def _reason(exc: Exception) -> str:
    if not isinstance(exc, rs.ValidationError):
        return truncate(str(exc), 200)
    where = ".".join(str(part) for part in exc.instance_path)
    return truncate(f"{where}: {exc.message}" if where else exc.message, 200)
