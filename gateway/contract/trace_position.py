"""Where a call stands in its trace, as plain values: made for each call, told to nobody unless the call is kept."""

from time import perf_counter_ns
from typing import Final, NamedTuple

HTTP_TRACEPARENT: Final = "linked"
"""In a call's trace context: the `traceparent` of the HTTP request, where `_meta` named another parent."""


class TracePosition(NamedTuple):
    """The span of one call: its own ids, and its parent's where somebody sent one."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    sampled: bool = False
    """Whether the trace is recorded whatever becomes of the call: by the parent's word, or by chance."""

    @property
    def traceparent(self) -> str:
        """As W3C writes it, for whoever works below this span."""
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
        """The revision it was asked in; empty until the request is sent."""
        self.session: str | None = None
        """Handshake era only: a digest that names the session with the server, never its id."""
        self.request_id: int | None = None
        """Ours, in that request."""
        self.queued = 0
        """Nanoseconds in which it waited for its turn."""
        self.started = perf_counter_ns()
        self.ended = 0
        self.failure = ""
        """`error.type` of the conventions; empty while nothing failed."""
        self.message = ""
        """What was said of the failure."""
        self.code: int | None = None
        """The JSON-RPC code it was answered with, if that was an error."""
