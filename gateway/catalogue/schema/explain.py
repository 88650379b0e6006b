"""Explains validation errors: a `Fault` with the path, the rule and, if possible, a suggested fix."""

from collections import defaultdict
from difflib import get_close_matches
from typing import Any, Final, cast

import jsonschema_rs as rs
import msgspec

from gateway.catalogue.schema.keywords import get_child, truncate
from gateway.contract import Json
from gateway.errors import Fault, Kind

_MESSAGES: Final = {
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be greater than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "pattern": "must match the pattern {pattern}",
    "uniqueItems": "must not contain duplicate items",
    "contains": "does not contain the required items",
    "const": "must be {expected_value}",
    "not": "has a form that is not allowed",
    "falseSchema": "is not allowed",
}


def rank(error: rs.ValidationError) -> tuple[bool, int]:
    """Sort key for the most helpful error: errors of alternatives come last, shallow errors before deep ones."""
    return error.kind.name in ("anyOf", "oneOf", "not"), len(error.instance_path)


def to_fault(error: rs.ValidationError, prefix: str, schema: Json) -> Fault:
    path = ".".join([prefix, *(truncate(part, 40) for part in error.instance_path)])
    rule = error.kind.name
    match error.kind:
        case rs.ValidationErrorKind.Required(property=name):
            return invalid_input(f"{path}.{truncate(name, 40)}", rule, "is required", f"Add `{truncate(name, 40)}`.")
        case (
            rs.ValidationErrorKind.AdditionalProperties(unexpected=[name, *_])
            | rs.ValidationErrorKind.UnevaluatedProperties(unexpected=[name, *_])
        ):
            near = get_close_matches(name[:80], _known_properties(schema, error.schema_path), n=1)
            hint = f"Did you mean `{truncate(near[0], 40)}`?" if near else f"Remove `{truncate(name, 40)}`."
            return invalid_input(f"{path}.{truncate(name, 40)}", rule, "is not a known property", hint)
        case rs.ValidationErrorKind.Type(types=types):
            return invalid_input(path, rule, f"must be {_join_options(types)}, not {_type_name(error.instance)}")
        case rs.ValidationErrorKind.Enum(options=options):
            near = get_close_matches(str(error.instance)[:80], [o for o in options if isinstance(o, str)], n=1)
            hint = f"Did you mean `{truncate(near[0], 40)}`?" if near else None
            return invalid_input(path, rule, f"must be one of {truncate(_join_options(options))}", hint)
        case rs.ValidationErrorKind.PropertyNames(error=inner):
            name = truncate(inner.instance, 40)
            return invalid_input(f"{path}.{name}", rule, f"has a name that {_describe(inner.kind)}")
        case rs.ValidationErrorKind.AnyOf(context=branches) | rs.ValidationErrorKind.OneOfNotValid(context=branches):
            return _explain_alternatives(path, rule, branches, prefix, schema)
        case rs.ValidationErrorKind.OneOfMultipleValid():
            return invalid_input(path, rule, "matches more than one of its exclusive forms")
        case _:
            return invalid_input(path, rule, _describe(error.kind))


def _explain_alternatives(
    path: str, rule: str, branches: list[list[rs.ValidationError]], prefix: str, schema: Json
) -> Fault:
    missing = [[e.kind.property for e in b if isinstance(e.kind, rs.ValidationErrorKind.Required)] for b in branches]
    if branches and all(len(names) == len(errors) for names, errors in zip(missing, branches, strict=True)):
        names = truncate(" or ".join(" and ".join(names) for names in missing))
        return invalid_input(path, rule, f"one of {names} is required", f"Add one of {names}.")
    # The branch whose tag matches is the intended one.
    intended = [b for b in branches if b and not any(e.kind.name in ("const", "enum", "type") for e in b)]
    if len(intended) == 1:
        return to_fault(min(intended[0], key=rank), prefix, schema)
    tags = [e for b in branches for e in b if e.kind.name == "const"]
    if tags and len(tags) == len(branches) and len({tuple(e.instance_path) for e in tags}) == 1:
        options = [cast("rs.ValidationErrorKind.Constant", e.kind).expected_value for e in tags]
        where = ".".join([prefix, *(truncate(part, 40) for part in tags[0].instance_path)])
        return invalid_input(where, "enum", f"must be one of {truncate(_join_options(options))}")
    types = [e for b in branches for e in b[:1] if e.kind.name == "type" and len(b) == 1]
    if len(types) == len(branches) and len({tuple(e.instance_path) for e in types}) == 1:
        names = [name for e in types for name in cast("rs.ValidationErrorKind.Type", e.kind).types]
        where = ".".join([prefix, *(truncate(part, 40) for part in types[0].instance_path)])
        return invalid_input(where, "type", f"must be {_join_options(names)}, not {_type_name(types[0].instance)}")
    return invalid_input(path, rule, f"matches none of its {len(branches)} allowed forms")


def invalid_input(path: str, rule: str, text: str, fix: str | None = None) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        f"{path}: {text}.",
        details={"validation_path": path, "validation_rule": rule},
        suggested_fix=fix,
    )


def _describe(kind: rs.ValidationErrorKind) -> str:
    values = {key: truncate(value) for key, value in kind.as_dict().items()}
    return _MESSAGES.get(kind.name, "does not meet `" + kind.name + "`").format_map(defaultdict(str, values))


def _known_properties(schema: Json, path: list[str | int]) -> list[str]:
    node: Any = schema
    for part in path[:-1]:
        node = get_child(node, str(part))
    properties: Any = cast("Json", node).get("properties") if isinstance(node, dict) else None
    return list(cast("Json", properties)) if isinstance(properties, dict) else []


def _join_options(values: list[Any]) -> str:
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else "".join(texts) or "nothing"


_TYPES: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "boolean"),
    (str, "string"),
    ((int, float), "number"),
    (dict, "object"),
    (list, "array"),
)


def _type_name(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "null")
