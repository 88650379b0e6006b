"""Times as text: UTC to the millisecond, so that their order is the order of the text."""

from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.errors import Fault, Kind

_OPEN_ENDED: Final = frozenset({"infinite", "infinity", "forever"})


def now() -> str:
    return _text(datetime.now(UTC))


def later(seconds: float) -> str:
    return _text(datetime.now(UTC) + timedelta(seconds=seconds))


def parse(given: str, argument: str) -> str:
    """An ISO 8601 date or date-time; without an offset it is UTC. Raises `Fault(INVALID_INPUT)`."""
    try:
        moment = datetime.fromisoformat(given.strip())
        return _text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as exc:
        raise Fault(
            Kind.INVALID_INPUT,
            f"{argument} is not an ISO 8601 date or time.",
            details={"validation_path": f"input.{argument}", "validation_rule": "format"},
            suggested_fix="Write it as 2026-02-10 or 2026-02-10T14:30:00Z.",
        ) from exc


def parse_bound(given: str | None, argument: str) -> str | None:
    """One end of a validity; None and `forever` leave it open."""
    if given is None or given.strip().lower() in _OPEN_ENDED:
        return None
    return parse(given, argument)


def check_order(valid_from: str | None, valid_to: str | None) -> None:
    if valid_from is not None and valid_to is not None and valid_to < valid_from:
        raise Fault(
            Kind.INVALID_INPUT,
            "valid_to is before valid_from.",
            details={"validation_path": "input.valid_to", "validation_rule": "order"},
        )


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
