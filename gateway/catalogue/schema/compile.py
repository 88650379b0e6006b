"""From a schema to its check, once for each content."""

from collections.abc import Callable
from functools import lru_cache

import jsonschema_rs as rs
import msgspec

from gateway.catalogue.schema.bounds import BadSchema, bound, clip
from gateway.catalogue.schema.check import Check
from gateway.catalogue.schema.keywords import validator_of
from gateway.catalogue.schema.levels import MAX_ROOT, by_depth
from gateway.catalogue.schema.loosen import without
from gateway.catalogue.schema.price import price_of
from gateway.catalogue.schema.survey import Survey
from gateway.contract import Json


def compile_check(schema: Json, *, prefix: str = "input") -> Callable[[Json], None]:
    """What raises `Fault` for arguments that the schema refuses. Raises `BadSchema`."""
    return _checked(bound(schema), prefix)


@lru_cache(maxsize=1024)
def _checked(encoded: bytes, prefix: str) -> Callable[[Json], None]:
    """Kept by content: a backend that lists the same again costs nothing."""
    schema: Json = msgspec.json.decode(encoded)
    survey = Survey(schema)
    refused = {pattern for pattern in survey.patterns if price_of(pattern) is None}
    exact = _compiled(schema, refused)
    loose = _compiled(schema, survey.patterns) if survey.patterns - refused else exact
    units, letters = by_depth(survey)
    if units[0] > MAX_ROOT:
        raise BadSchema("too many subschemas apply to one value")
    return Check(prefix, schema, exact, loose, units, letters, survey.branching)


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
        raise BadSchema(_reason(exc)) from exc


def _refuse(uri: str) -> Json:
    raise ValueError(f"{uri} is not fetched")


def _reason(exc: Exception) -> str:
    if not isinstance(exc, rs.ValidationError):
        return clip(str(exc), 200)
    where = ".".join(str(part) for part in exc.instance_path)
    return clip(f"{where}: {exc.message}" if where else exc.message, 200)
