"""The check itself: what the arguments would cost to look at, whether they fit, and only then why not.

From a schema to its check, once for each content.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, cast

import jsonschema_rs as rs
import msgspec

from gateway.catalogue.schema.cost import BUDGET, MAX_ROOT, SchemaSurvey, by_depth, price_of, without
from gateway.catalogue.schema.explain import fault, rank, refusal
from gateway.catalogue.schema.keywords import InvalidSchema, bound, clip, validator_of
from gateway.contract import Json
from gateway.errors import Fault, Kind

_LIGHT: Final = 8

"""Up to this many units for each value, even 1 MiB of arguments needs no weighing."""

_EXPLAINED: Final = 5_000

"""Listing every error costs a thousand times as much as finding that there is one."""


class ArgumentCheck:
    """The compiled schema: finds that arguments are bad in half a microsecond, and says why only then."""

    def __init__(
        self,
        prefix: str,
        schema: Json,
        exact: rs.Validator,
        loose: rs.Validator,
        units: list[int],
        letters: list[int],
        branching: bool,
    ) -> None:
        self._prefix = prefix
        self._schema = schema
        self._exact = exact
        self._loose = loose
        self._units = units
        self._letters = letters
        self._peak = max(units)
        self._dearest = max(*units, *letters)
        self._weighed = self._peak > _LIGHT or any(letters)
        self._branching = branching

    def __call__(self, arguments: Json) -> None:
        try:
            validator = self._affordable(arguments) if self._weighed else self._exact
            valid = validator.is_valid(arguments)
        except (ValueError, TypeError) as exc:
            raise refusal(self._prefix, "type", "is not JSON") from exc
        if not valid:
            raise self._explained(validator, arguments)

    def _affordable(self, arguments: Json) -> rs.Validator:
        size = len(msgspec.json.encode(arguments))
        # As `_amount` would count at most: every byte a value, or all of them one number.
        if (6 * size + (size // 77) ** 2) * self._dearest <= BUDGET:
            return self._exact
        work = scanned = 0
        for depth, level in enumerate(_levels_of(arguments)):
            units, letters = _at(self._units, depth), _at(self._letters, depth)
            if not units and not letters:
                break
            work += len(level) * units
            if work <= BUDGET:
                extra, text = _amount(level)
                work += extra * units
                scanned += text * letters
            if work > BUDGET:
                raise Fault(
                    Kind.TOO_LARGE,
                    f"{self._prefix}: too large or too deep to be checked against this tool's schema.",
                    details={"validation_path": self._prefix, "validation_rule": "complexity"},
                    suggested_fix="Send less at once.",
                )
        return self._loose if scanned > BUDGET else self._exact

    def _explained(self, validator: rs.Validator, arguments: Json) -> Fault:
        if self._size(arguments) * self._peak <= _EXPLAINED:
            if (first := min(validator.iter_errors(arguments), key=rank, default=None)) is not None:
                return fault(first, self._prefix, self._schema)
        elif not self._branching:
            try:
                validator.validate(arguments)
            except rs.ValidationError as error:
                return fault(error, self._prefix, self._schema)
        return refusal(self._prefix, "schema", "does not fit the tool's input schema, and is too large to say where")

    def _size(self, arguments: Json) -> int:
        size = 0
        for level in _levels_of(arguments):
            size += len(level) + sum(len(value) for value in level if isinstance(value, str)) // 4096
            if size > _EXPLAINED:
                break
        return size


def _levels_of(arguments: Json) -> Iterator[list[Any]]:
    """The values at each depth. A key counts as a value beside the one it names: both may be checked."""
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


def _amount(level: list[Any]) -> tuple[int, int]:
    """As how many values more the numbers of many digits count, and how many characters of text there are."""
    extra = letters = 0
    for value in level:
        if isinstance(value, str):
            letters += len(value)
        elif isinstance(value, int):
            extra += (value.bit_length() >> 8) ** 2
        elif isinstance(value, float) and not 1e-6 < abs(value) < 1e15:
            extra += 16
    return extra, letters


def _at(levels: list[int], depth: int) -> int:
    return levels[depth] if depth < len(levels) else levels[-1]


def compile_check(schema: Json, *, prefix: str = "input") -> Callable[[Json], None]:
    """What raises `Fault` for arguments that the schema refuses. Raises `BadSchema`."""
    return _checked(bound(schema), prefix)


@lru_cache(maxsize=1024)
def _checked(encoded: bytes, prefix: str) -> Callable[[Json], None]:
    """Kept by content: a backend that lists the same again costs nothing."""
    schema: Json = msgspec.json.decode(encoded)
    survey = SchemaSurvey(schema)
    refused = {pattern for pattern in survey.patterns if price_of(pattern) is None}
    exact = _compiled(schema, refused)
    loose = _compiled(schema, survey.patterns) if survey.patterns - refused else exact
    units, letters = by_depth(survey)
    if units[0] > MAX_ROOT:
        raise InvalidSchema("too many subschemas apply to one value")
    return ArgumentCheck(prefix, schema, exact, loose, units, letters, survey.branching)


def _compiled(schema: Json, refused: set[str]) -> rs.Validator:
    kind = (
        validator_of(schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")) or rs.Draft202012Validator
    )
    try:
        return kind(
            without(schema, refused) if refused else schema,
            validate_formats=False,
            pattern_options=rs.RegexOptions(size_limit=1 << 20),
            retriever=_refuse,
        )
    except (ValueError, rs.ReferencingError) as exc:
        raise InvalidSchema(_reason(exc)) from exc


def _refuse(uri: str) -> Json:
    raise ValueError(f"{uri} is not fetched")


def _reason(exc: Exception) -> str:
    if not isinstance(exc, rs.ValidationError):
        return clip(str(exc), 200)
    where = ".".join(str(part) for part in exc.instance_path)
    return clip(f"{where}: {exc.message}" if where else exc.message, 200)
