"""What is wrong with the arguments, in words: the place, the rule, and what would help."""

from collections import defaultdict
from difflib import get_close_matches
from typing import Any, Final, cast

import jsonschema_rs as rs
import msgspec

from gateway.catalogue.schema.keywords import clip, step
from gateway.contract import Json
from gateway.errors import Fault, Kind

_SAID: Final = {
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be over {limit}",
    "exclusiveMaximum": "must be under {limit}",
    "multipleOf": "must be a multiple of {multiple_of}",
    "pattern": "must match the pattern {pattern}",
    "uniqueItems": "must not hold the same item twice",
    "contains": "does not hold the items it must",
    "const": "must be {expected_value}",
    "not": "has a form that is excluded",
    "falseSchema": "is not allowed",
}


def rank(error: rs.ValidationError) -> tuple[bool, int]:
    """The plainest error first: an either/or says least, and a shallow one explains the deeper ones."""
    return error.kind.name in ("anyOf", "oneOf", "not"), len(error.instance_path)


def fault(error: rs.ValidationError, prefix: str, schema: Json) -> Fault:
    path = ".".join([prefix, *(clip(part, 40) for part in error.instance_path)])
    rule = error.kind.name
    match error.kind:
        case rs.ValidationErrorKind.Required(property=name):
            return refusal(f"{path}.{clip(name, 40)}", rule, "is required", f"Add `{clip(name, 40)}`.")
        case (
            rs.ValidationErrorKind.AdditionalProperties(unexpected=[name, *_])
            | rs.ValidationErrorKind.UnevaluatedProperties(unexpected=[name, *_])
        ):
            near = get_close_matches(name[:80], _known(schema, error.schema_path), n=1)
            hint = f"Did you mean `{clip(near[0], 40)}`?" if near else f"Remove `{clip(name, 40)}`."
            return refusal(f"{path}.{clip(name, 40)}", rule, "is not a known property", hint)
        case rs.ValidationErrorKind.Type(types=types):
            return refusal(path, rule, f"must be {_either(types)}, not {_type(error.instance)}")
        case rs.ValidationErrorKind.Enum(options=options):
            near = get_close_matches(str(error.instance)[:80], [o for o in options if isinstance(o, str)], n=1)
            hint = f"Did you mean `{clip(near[0], 40)}`?" if near else None
            return refusal(path, rule, f"must be one of {clip(_either(options))}", hint)
        case rs.ValidationErrorKind.PropertyNames(error=inner):
            name = clip(inner.instance, 40)
            return refusal(f"{path}.{name}", rule, f"has a name that {_said(inner.kind)}")
        case rs.ValidationErrorKind.AnyOf(context=branches) | rs.ValidationErrorKind.OneOfNotValid(context=branches):
            return _either_or(path, rule, branches, prefix, schema)
        case rs.ValidationErrorKind.OneOfMultipleValid():
            return refusal(path, rule, "fits more than one of the forms that exclude each other")
        case _:
            return refusal(path, rule, _said(error.kind))


def _either_or(path: str, rule: str, branches: list[list[rs.ValidationError]], prefix: str, schema: Json) -> Fault:
    missing = [[e.kind.property for e in b if isinstance(e.kind, rs.ValidationErrorKind.Required)] for b in branches]
    if branches and all(len(names) == len(errors) for names, errors in zip(missing, branches, strict=True)):
        names = clip(" or ".join(" and ".join(names) for names in missing))
        return refusal(path, rule, f"one of {names} is required", f"Add one of {names}.")
    # The branch whose tag fits is the one that was meant.
    meant = [b for b in branches if b and not any(e.kind.name in ("const", "enum", "type") for e in b)]
    if len(meant) == 1:
        return fault(min(meant[0], key=rank), prefix, schema)
    tags = [e for b in branches for e in b if e.kind.name == "const"]
    if tags and len(tags) == len(branches) and len({tuple(e.instance_path) for e in tags}) == 1:
        options = [cast("rs.ValidationErrorKind.Constant", e.kind).expected_value for e in tags]
        where = ".".join([prefix, *(clip(part, 40) for part in tags[0].instance_path)])
        return refusal(where, "enum", f"must be one of {clip(_either(options))}")
    types = [e for b in branches for e in b[:1] if e.kind.name == "type" and len(b) == 1]
    if len(types) == len(branches) and len({tuple(e.instance_path) for e in types}) == 1:
        names = [name for e in types for name in cast("rs.ValidationErrorKind.Type", e.kind).types]
        where = ".".join([prefix, *(clip(part, 40) for part in types[0].instance_path)])
        return refusal(where, "type", f"must be {_either(names)}, not {_type(types[0].instance)}")
    return refusal(path, rule, f"fits none of its {len(branches)} allowed forms")


def refusal(path: str, rule: str, text: str, fix: str | None = None) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        f"{path}: {text}.",
        details={"validation_path": path, "validation_rule": rule},
        suggested_fix=fix,
    )


def _said(kind: rs.ValidationErrorKind) -> str:
    words = {key: clip(value) for key, value in kind.as_dict().items()}
    return _SAID.get(kind.name, "does not meet `" + kind.name + "`").format_map(defaultdict(str, words))


def _known(schema: Json, path: list[str | int]) -> list[str]:
    place: Any = schema
    for part in path[:-1]:
        place = step(place, str(part))
    properties: Any = cast("Json", place).get("properties") if isinstance(place, dict) else None
    return list(cast("Json", properties)) if isinstance(properties, dict) else []


def _either(values: list[Any]) -> str:
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else "".join(texts) or "nothing"


_TYPES: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "boolean"),
    (str, "string"),
    ((int, float), "number"),
    (dict, "object"),
    (list, "array"),
)


def _type(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "null")
