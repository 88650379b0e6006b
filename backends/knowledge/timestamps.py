"""Timestamps as text: ISO 8601 in UTC with milliseconds, so that they sort as strings."""

from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.errors import Fault, Kind

_OPEN_ENDED: Final = frozenset({"infinite", "infinity", "forever"})


def now() -> str:
    return _format(datetime.now(UTC))


def from_now(seconds: float) -> str:
    return _format(datetime.now(UTC) + timedelta(seconds=seconds))


def parse(value: str, argument: str) -> str:
    """Parse an ISO 8601 date or date-time; UTC if it has no offset. Raises `Fault(INVALID_INPUT)`."""
    try:
        moment = datetime.fromisoformat(value.strip())
        return _format(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as exc:
        raise Fault(
            Kind.INVALID_INPUT,
            f"{argument} is not an ISO 8601 date or time.",
            details={"validation_path": f"input.{argument}", "validation_rule": "format"},
            suggested_fix="Write it as 2026-02-10 or 2026-02-10T14:30:00Z.",
        ) from exc


def parse_bound(value: str | None, argument: str) -> str | None:
    """Parse one end of a validity interval. None and `forever` mean open-ended."""
    if value is None or value.strip().lower() in _OPEN_ENDED:
        return None
    return parse(value, argument)


def check_order(valid_from: str | None, valid_to: str | None) -> None:
    if valid_from is not None and valid_to is not None and valid_to < valid_from:
        raise Fault(
            Kind.INVALID_INPUT,
            "valid_to is before valid_from.",
            details={"validation_path": "input.valid_to", "validation_rule": "order"},
        )


def _format(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
