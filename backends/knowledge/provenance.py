"""Provenance of entries and triples: source, actor, confidence, validity and version."""

from typing import Final

from backends.knowledge import timestamps
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

_FIELDS: Final = ("source", "actor", "confidence")


def create(unit: UnitOfWork, arguments: Json) -> Json:
    """Return the provenance fields of a new item."""
    found: Json = {name: arguments.get(name) for name in _FIELDS}
    found["actor"] = found["actor"] or unit.actor
    found |= {name: timestamps.parse_bound(arguments.get(name), name) for name in ("valid_from", "valid_to")}
    timestamps.check_order(found["valid_from"], found["valid_to"])
    return found | {"version": 1, "recorded_at": unit.now, "updated_at": unit.now}


def apply_update(unit: UnitOfWork, before: Json, arguments: Json, fields: tuple[str, ...]) -> Json:
    """Return the item with the changes of the arguments. Raises `Fault(INVALID_INPUT)` if they change nothing."""
    changes: Json = {name: arguments[name] for name in (*fields, *_FIELDS) if name in arguments}
    for name in ("valid_from", "valid_to"):
        if name in arguments:
            changes[name] = timestamps.parse_bound(arguments[name], name)
    if not changes:
        raise Fault(
            Kind.INVALID_INPUT,
            "No field to change was supplied.",
            details={"validation_path": "arguments", "validation_rule": "minProperties"},
            suggested_fix=f"Supply at least one of {', '.join((*fields, *_FIELDS))}, valid_from, valid_to.",
        )
    after = {**before, **changes, "version": before["version"] + 1, "updated_at": unit.now}
    timestamps.check_order(after["valid_from"], after["valid_to"])
    return after


def check_not_blank(fields: Json) -> None:
    """Reject blank texts. Raises `Fault(DENIED)`: the contract makes this a policy error, not a validation error."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.strip():
            raise Fault(
                Kind.DENIED,
                f"{name} must not be blank.",
                details={"field": name},
                suggested_fix=f"Supply a text in {name}.",
            )


def check_confidence(fields: Json, minimum: float | None) -> None:
    """Apply the `min_confidence` option. Raises `Fault(DENIED)`."""
    confidence = fields.get("confidence")
    if minimum is not None and confidence is not None and confidence < minimum:
        raise Fault(
            Kind.DENIED,
            f"confidence must be at least {minimum:g}.",
            details={"field": "confidence", "minimum": minimum},
        )
