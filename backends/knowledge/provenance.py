"""Where a fact comes from, how sure it is and when it holds: the same for entries and triples."""

from typing import Final

from backends.knowledge import timestamps
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json
from gateway.errors import Fault, Kind

PLAIN: Final = ("source", "actor", "confidence")


def of(book: Book, arguments: Json) -> Json:
    """For something new."""
    found: Json = {name: arguments.get(name) for name in PLAIN}
    found["actor"] = found["actor"] or book.actor
    found |= {name: timestamps.parse_bound(arguments.get(name), name) for name in ("valid_from", "valid_to")}
    timestamps.check_order(found["valid_from"], found["valid_to"])
    return found | {"version": 1, "recorded_at": book.now, "updated_at": book.now}


def updated(book: Book, before: Json, arguments: Json, fields: tuple[str, ...]) -> Json:
    """What is there, with what the arguments change. Raises `Fault(INVALID_INPUT)` when that is nothing."""
    given: Json = {name: arguments[name] for name in (*fields, *PLAIN) if name in arguments}
    for name in ("valid_from", "valid_to"):
        if name in arguments:
            given[name] = timestamps.parse_bound(arguments[name], name)
    if not given:
        raise Fault(
            Kind.INVALID_INPUT,
            "Nothing to change was given.",
            details={"validation_path": "arguments", "validation_rule": "minProperties"},
            suggested_fix=f"Give at least one of {', '.join((*fields, *PLAIN))}, valid_from, valid_to.",
        )
    after = {**before, **given, "version": before["version"] + 1, "updated_at": book.now}
    timestamps.check_order(after["valid_from"], after["valid_to"])
    return after


def check_filled(fields: Json) -> None:
    """The organisation's rule that memory is never blank. Raises `Fault(DENIED)`."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.strip():
            raise Fault(
                Kind.DENIED,
                f"{name} must not be blank.",
                details={"field": name},
                suggested_fix=f"Say something in {name}.",
            )


def check_confidence(fields: Json, least: float | None) -> None:
    """The organisation's rule on how sure a fact must be. Raises `Fault(DENIED)`."""
    confidence = fields.get("confidence")
    if least is not None and confidence is not None and confidence < least:
        raise Fault(
            Kind.DENIED,
            f"Facts with a confidence under {least:g} are not kept here.",
            details={"field": "confidence", "minimum": least},
        )
