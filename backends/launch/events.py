"""Journal events as a hash chain: each event contains the hash of its predecessor, which makes tampering detectable."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from backends.launch.serialization import canonical_json, digest
from gateway.contract import Json, TracePosition
from gateway.errors import Fault, Kind

GENESIS: Final = ""


@dataclass(frozen=True, slots=True)
class Span:
    """The trace and span ids of an event."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    parent_span_id: str | None = None

    @classmethod
    def from_position(cls, position: TracePosition) -> "Span":
        """Use the ids of a span of the gateway's trace."""
        return cls(position.trace_id, position.span_id, position.parent_id or None)

    def child(self) -> "Span":
        return Span(self.trace_id, secrets.token_hex(8), self.span_id)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that has not been appended to the chain yet."""

    type: str
    payload: Json
    span: Span


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def chain(run_id: str, new_events: Sequence[NewEvent], previous: str) -> list[Json]:
    """Return complete events in order; the first one follows the event with the hash `previous`."""
    events: list[Json] = []
    for each in new_events:
        event = _event(run_id, each, previous)
        previous = event["event_hash"]
        events.append(event)
    return events


def event_hash(event: Json) -> str:
    parts = (
        event["event_id"],
        event["ts"],
        event["type"],
        canonical_json(event["payload"]).decode(),
        event["prev_hash"],
    )
    return digest("".join(parts).encode())


def read_chain(data: bytes) -> list[Json]:
    """Parse a journal. Raises `Fault` if the chain is broken. Ignores an incomplete last line."""
    complete, _, _ = data.rpartition(b"\n")
    events: list[Json] = []
    previous = GENESIS
    for number, line in enumerate(complete.splitlines(), 1):
        event = _parse_event(line)
        if event is None or event.get("prev_hash") != previous or event.get("event_hash") != event_hash(event):
            raise Fault(
                Kind.INTERNAL,
                "The run's journal was modified outside the gateway.",
                code="EVENT_CHAIN_BROKEN",
                details={"cause_class": "EventChainBroken", "event": number},
            )
        previous = event["event_hash"]
        events.append(event)
    return events


def _event(run_id: str, new_event: NewEvent, previous: str) -> Json:
    stamp = now()
    event: Json = {
        "event_id": f"evt-{stamp[:19].replace('-', '').replace(':', '').replace('T', '')}-{secrets.token_hex(4)}",
        "run_id": run_id,
        "ts": stamp,
        "type": new_event.type,
        "payload": new_event.payload,
        "trace_id": new_event.span.trace_id,
        "span_id": new_event.span.span_id,
        "prev_hash": previous,
    }
    if new_event.span.parent_span_id is not None:
        event["parent_span_id"] = new_event.span.parent_span_id
    event["event_hash"] = event_hash(event)
    return event


def _parse_event(line: bytes) -> Json | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.keys() >= _REQUIRED_KEYS else None  # pyright: ignore[reportUnknownVariableType]


_REQUIRED_KEYS: Final = frozenset(
    {"event_id", "run_id", "ts", "type", "payload", "trace_id", "span_id", "prev_hash", "event_hash"}
)
