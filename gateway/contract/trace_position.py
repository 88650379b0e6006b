"""Trace context of a call and of its upstream requests, as plain values, and the head sampler."""

from collections.abc import Mapping
from random import getrandbits, randbytes, random
from time import perf_counter_ns
from typing import Final, NamedTuple

HTTP_TRACEPARENT: Final = "linked"
"""Key in a call's trace context for the `traceparent` of the HTTP request, if `_meta` named another parent."""


class TracePosition(NamedTuple):
    """Span ids of one call, with the parent's id if the client sent one."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    sampled: bool = False
    """Whether the trace is recorded regardless of the outcome: decided by the parent or by the sampler."""

    @property
    def traceparent(self) -> str:
        """W3C `traceparent` for child spans."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


class UpstreamHop:
    """One request to a remote server on behalf of a call."""

    __slots__ = (
        "address",
        "backend",
        "code",
        "ended",
        "failure",
        "message",
        "protocol",
        "queued",
        "request_id",
        "session",
        "span_id",
        "started",
        "transport",
    )

    def __init__(self, backend: str, span_id: str, transport: str, address: tuple[str, int] | None) -> None:
        self.backend = backend
        self.span_id = span_id
        self.transport = transport
        self.address = address
        self.protocol = ""
        """Protocol version of the request; empty until it is sent."""
        self.session: str | None = None
        """Handshake era only: digest of the upstream session id."""
        self.request_id: int | None = None
        """JSON-RPC id that the gateway used."""
        self.queued = 0
        """Nanoseconds spent waiting for capacity."""
        self.started = perf_counter_ns()
        self.ended = 0
        self.failure = ""
        """`error.type` of the OpenTelemetry conventions; empty on success."""
        self.message = ""
        """Error message."""
        self.code: int | None = None
        """JSON-RPC error code of the response, if it was an error."""


def new_span_id() -> str:
    return f"{getrandbits(64) or 1:016x}"


def child_position(position: TracePosition | None) -> TracePosition:
    """Return the position of a new child span. Without a parent, starts a new trace that is not sampled."""
    if position is None:
        return Sampler(0.0)({})
    return TracePosition(position.trace_id, new_span_id(), position.span_id, position.sampled)


class Sampler:
    """Head sampler: samples `ratio` of the calls.

    With `follow_parent`, the sampling flag of a received `traceparent` decides instead.
    """

    def __init__(self, ratio: float, *, follow_parent: bool = True) -> None:
        self._ratio = ratio
        self._follow_parent = follow_parent

    def __call__(self, trace: Mapping[str, str]) -> TracePosition:
        parent = trace.get("traceparent")
        if parent is None:
            ids = randbytes(24).hex()  # noqa: S311 - ids, not secrets
            return TracePosition(ids[:32], ids[32:], "", random() < self._ratio)  # noqa: S311 - sampling
        sampled = bool(int(parent[53:55], 16) & 1) if self._follow_parent else random() < self._ratio  # noqa: S311
        return TracePosition(parent[3:35], new_span_id(), parent[36:52], sampled)
