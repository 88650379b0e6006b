"""Events as a hash chain: each line binds the one before it, so that a changed or missing line shows."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from backends.launch.serialization import canonical, digest
from gateway.contract import Json, TracePosition
from gateway.errors import Fault, Kind

GENESIS: Final = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Where an event belongs in its trace."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    parent_span_id: str | None = None

    @classmethod
    def at(cls, place: TracePosition) -> "Span":
        """The same as in the gateway's own trace."""
        return cls(place.trace_id, place.span_id, place.parent_id or None)

    def child(self) -> "Span":
        return Span(self.trace_id, secrets.token_hex(8), self.span_id)


@dataclass(frozen=True, slots=True)
class News:
    """An event that is yet to be chained."""

    type: str
    payload: Json
    span: Span


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def chained(run_id: str, news: Sequence[News], previous: str) -> list[Json]:
    """The events for these news, in order, after the event with that hash."""
    events: list[Json] = []
    for each in news:
        event = _event(run_id, each, previous)
        previous = event["event_hash"]
        events.append(event)
    return events


def event_hash(event: Json) -> str:
    parts = (event["event_id"], event["ts"], event["type"], canonical(event["payload"]).decode(), event["prev_hash"])
    return digest("".join(parts).encode())


def read_chain(data: bytes) -> list[Json]:
    """The events of a journal. Raises `Fault` where the chain is broken; a last line cut short never happened."""
    whole, _, _ = data.rpartition(b"\n")
    events: list[Json] = []
    previous = GENESIS
    for number, line in enumerate(whole.splitlines(), 1):
        event = _parsed(line)
        if event is None or event.get("prev_hash") != previous or event.get("event_hash") != event_hash(event):
            raise Fault(
                Kind.INTERNAL,
                "The run's journal was changed by another hand.",
                code="EVENT_CHAIN_BROKEN",
                details={"cause_class": "EventChainBroken", "event": number},
            )
        previous = event["event_hash"]
        events.append(event)
    return events


def _event(run_id: str, news: News, previous: str) -> Json:
    stamp = now()
    event: Json = {
        "event_id": f"evt-{stamp[:19].replace('-', '').replace(':', '').replace('T', '')}-{secrets.token_hex(4)}",
        "run_id": run_id,
        "ts": stamp,
        "type": news.type,
        "payload": news.payload,
        "trace_id": news.span.trace_id,
        "span_id": news.span.span_id,
        "prev_hash": previous,
    }
    if news.span.parent_span_id is not None:
        event["parent_span_id"] = news.span.parent_span_id
    event["event_hash"] = event_hash(event)
    return event


def _parsed(line: bytes) -> Json | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.keys() >= _KEYS else None  # pyright: ignore[reportUnknownVariableType]


_KEYS: Final = frozenset(
    {"event_id", "run_id", "ts", "type", "payload", "trace_id", "span_id", "prev_hash", "event_hash"}
)
