"""What a tenant asked to see of its calls, without what no trace should hold.

A kept call as spans: plain values by OpenTelemetry's MCP conventions, encoded only for export.

One SERVER span for the call and one CLIENT span for each request to a remote server. The gateway's own time is told
by attributes of the one span, a number for each stage.
"""

import asyncio
import re
from collections.abc import Iterator
from operator import sub
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from gateway.contract import Call, Json, Record, Result
from gateway.contract.trace_position import HTTP_TRACEPARENT, TracePosition, UpstreamHop
from gateway.error_rendering import code_of
from gateway.errors import Fault, ForeignError
from gateway.telemetry.log import clean

MAX_TEXT: Final = 4096

_MAX_DEPTH: Final = 32

HIDDEN: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|authori[sz]ation|api[-_]?key|private[-_]?key|cookie|session[-_]?id",
    re.IGNORECASE,
)


def redacted(value: Any, depth: int = 0) -> Any:
    """The same value, with what stands under a telling key hidden, and credentials cut from texts."""
    if depth > _MAX_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return {key: HIDDEN if _SECRET_KEY.search(key) else redacted(each, depth + 1) for key, each in known.items()}
    if isinstance(value, list):
        return [redacted(each, depth + 1) for each in cast("list[Any]", value)]
    return clean(value, MAX_TEXT) if isinstance(value, str) else value


def as_text(value: Any) -> str:
    """JSON of it, redacted and bounded."""
    shown = redacted(value)
    if isinstance(shown, str):
        return shown
    try:
        return msgspec.json.encode(shown).decode()[:MAX_TEXT]
    except (TypeError, UnicodeEncodeError):
        return HIDDEN


Attributes = list[tuple[str, Any]]

TOOL_ERROR: Final = "tool_error"

_FORGIVEN: Final = frozenset({-32700, -32600, -32601, -32602, -32002})

"""The client's own mistakes: by the conventions no errors of the server."""

_HTTP: Final[Attributes] = [
    ("network.transport", "tcp"),
    ("network.protocol.name", "http"),
    ("network.protocol.version", "1.1"),
]

_STAGE: Final = {
    name: f"gatehouse.stage.{name}"
    for name in (
        "trace", "audit", "limit", "resolve", "validate", "authorize", "approve", "guard", "deadline", "share",
        "dispatch", "end", "edge",
    )
}  # fmt: skip


class SpanFailure(Struct, frozen=True):
    """How a call failed, in the conventions' words."""

    type: str
    """`error.type`; empty when what happened does not count as the server's error."""
    code: int | None = None
    message: str = ""


class Span(Struct, frozen=True):
    """One span. Times are Unix time in nanoseconds."""

    name: str
    kind: Literal["server", "client", "internal"]
    """Of a client's request, of a request to a remote server, or of a call that a module made."""
    place: TracePosition
    started: int
    ended: int
    attributes: Attributes
    error: str | None = None
    """The status description, when the status is an error."""
    state: str = ""
    """W3C tracestate, as it came."""
    link: str = ""
    """The `traceparent` of a span that had to do with it and is not its parent."""

    @property
    def trace_id(self) -> str:
        return self.place.trace_id

    @property
    def duration(self) -> float:
        return (self.ended - self.started) / 1e9


def failure(call: Call, exc: BaseException | None) -> SpanFailure | None:
    """None when nothing failed."""
    match exc:
        case None:
            return SpanFailure(TOOL_ERROR) if call.record.outcome == TOOL_ERROR else None
        case Fault() | ForeignError():
            code, message = code_of(exc, call), clean(exc.message, 256)
            if code is None:
                return SpanFailure(TOOL_ERROR, None, message)
            return SpanFailure("" if code in _FORGIVEN else str(code), code, message)
        case asyncio.CancelledError():
            return SpanFailure("cancelled")
        case _:
            return SpanFailure("-32603", -32603)


def stage_times(record: Record, ended: int) -> Iterator[tuple[str, int]]:
    """Each stage with the nanoseconds from its entry to the next one's; the last has the way back as well."""
    marks = record.marks
    return zip(record.stages, map(sub, (*marks[1:], ended), marks), strict=False)


def target(call: Call) -> str:
    """The canonical id; a client's own text, cleaned, where the name leads nowhere or is a URI."""
    route = call.resolved_route
    if route is not None and call.method == "tools/call":
        return route.canonical
    return clean(route.canonical if route else str(call.params.get("name") or call.params.get("uri") or ""), 256)


def spans_of(
    call: Call, exc: BaseException | None, ended: int, offset: int, content: Result | None = None, *, open: bool = False
) -> list[Span]:
    """The call's spans, its own first. `ended` is by the clock of its record, and `offset` turns that into Unix time.

    Arguments and `content` are told only with `open`, redacted.
    """
    record = call.record
    place = record.position
    assert place is not None
    failed = failure(call, exc)
    # Only a call that a module made has no request.
    inside = call.request_id is None
    attributes = _common(call)
    if not inside:
        attributes += _HTTP
    attributes.append(("mcp.protocol.version", call.client.version))
    if (session := call.client.session) is not None and not call.client.modern:
        # Without its tenant, which is an attribute of its own.
        attributes.append(("mcp.session.id", session.rpartition(":")[2]))
    if call.request_id is not None:
        attributes.append(("jsonrpc.request.id", clean(str(call.request_id), 128)))
    if call.peer is not None:
        attributes += [("client.address", call.peer[0]), ("client.port", call.peer[1])]
    attributes += _own(call)
    if failed is not None:
        _add_failure(attributes, failed.type, failed.code)
    attributes += [(_STAGE.get(name) or f"gatehouse.stage.{name}", ns / 1e9) for name, ns in stage_times(record, ended)]
    if open:
        _add_content(attributes, call, content)
    error = failed.message if failed is not None and failed.type else None
    came = call.trace
    state, link = (came.get("tracestate", ""), came.get(HTTP_TRACEPARENT, "")) if came else ("", "")
    kind = "internal" if inside else "server"
    spans = [Span(_name(call), kind, place, record.started + offset, ended + offset, attributes, error, state, link)]
    if record.hops:
        spans += [_client_span(call, place, hop, ended, offset) for hop in record.hops]
    return spans


def _name(call: Call) -> str:
    """Only a name that leads somewhere is part of a span's: a client's own text would make a new one each time."""
    route = call.resolved_route
    return f"{call.method} {route.canonical}" if route and _names(call) else call.method


_NAMED: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}

_COMPLETION: Final = "completion/complete"


def _names(call: Call) -> str | None:
    """The attribute that its target's name goes into, where it has one: a completion may be for a prompt."""
    if call.method != _COMPLETION:
        return _NAMED.get(call.method)
    return "gen_ai.prompt.name" if call.resolved_route and call.params["ref"].get("type") == "ref/prompt" else None


def _common(call: Call) -> Attributes:
    attributes: Attributes = [("mcp.method.name", call.method)]
    if (key := _names(call)) is not None:
        attributes.append((key, target(call)))
        if call.method == "tools/call":
            attributes.append(("gen_ai.operation.name", "execute_tool"))
        return attributes
    about: Any = call.params.get("ref") if call.method == _COMPLETION else call.params
    if isinstance(about, dict) and (uri := cast("Json", about).get("uri")) is not None:
        attributes.append(("mcp.resource.uri", clean(str(uri), 256)))
    return attributes


def _own(call: Call) -> Attributes:
    record, route = call.record, call.resolved_route
    attributes: Attributes = [
        ("gatehouse.tenant", call.caller.tenant),
        ("gatehouse.principal", call.caller.principal),
        ("gatehouse.correlation_id", call.id),
        ("gatehouse.policy.decision", record.decision),
        ("gatehouse.outcome", record.outcome),
        ("gatehouse.endpoint", call.endpoint),
    ]
    if route is not None:
        attributes.append(("gatehouse.namespace", route.namespace))
        attributes.append(("gatehouse.effect", route.effect))
    if record.policies:
        attributes.append(("gatehouse.policy.ids", ",".join(record.policies)[:512]))
    return attributes


def _client_span(call: Call, place: TracePosition, hop: UpstreamHop, ended: int, offset: int) -> Span:
    attributes = _common(call)
    if hop.protocol:
        attributes.append(("mcp.protocol.version", hop.protocol))
    if hop.session is not None:
        attributes.append(("mcp.session.id", hop.session))
    if hop.request_id is not None:
        attributes.append(("jsonrpc.request.id", str(hop.request_id)))
    if hop.transport == "stdio":
        attributes.append(("network.transport", "pipe"))
    else:
        attributes += _HTTP
    if hop.address is not None:
        attributes += [("server.address", hop.address[0]), ("server.port", hop.address[1])]
    attributes += [
        ("gatehouse.tenant", call.caller.tenant),
        ("gatehouse.namespace", hop.backend),
        ("gatehouse.correlation_id", call.id),
    ]
    if hop.queued:
        attributes.append(("gatehouse.queued", hop.queued / 1e9))
    _add_failure(attributes, hop.failure, hop.code)
    own = TracePosition(place.trace_id, hop.span_id, place.span_id, place.sampled)
    last = (hop.ended or ended) + offset
    error = clean(hop.message, 256) if hop.failure else None
    return Span(_name(call), "client", own, hop.started + offset, last, attributes, error)


def _add_failure(attributes: Attributes, type: str, code: int | None) -> None:
    if type:
        attributes.append(("error.type", type))
    if code is not None:
        attributes.append(("rpc.response.status_code", str(code)))


def _add_content(attributes: Attributes, call: Call, result: Result | None) -> None:
    if call.method == "tools/call":
        attributes.append(("gen_ai.tool.call.arguments", as_text(call.arguments)))
        if isinstance(result, dict):
            attributes.append(("gen_ai.tool.call.result", as_text(result)))
    elif call.method == "prompts/get":
        attributes += [(f"gen_ai.prompt.variable.{clean(str(k), 64)}", as_text(v)) for k, v in call.arguments.items()]
