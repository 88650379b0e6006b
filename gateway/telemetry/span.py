"""Spans of a call, as plain values that follow OpenTelemetry's MCP conventions. They are encoded only for export.

A call has one SERVER span and one CLIENT span per request to a remote server. The time spent in each stage of the
gateway is an attribute of the SERVER span. Content of calls is redacted before it becomes an attribute.
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
from gateway.error_rendering import rpc_code_of
from gateway.errors import Fault, ForeignError
from gateway.telemetry.log import clean

MAX_TEXT: Final = 4096
_MAX_DEPTH: Final = 32
REDACTED: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|authori[sz]ation|api[-_]?key|private[-_]?key|cookie|session[-_]?id",
    re.IGNORECASE,
)


def redact(value: Any, depth: int = 0) -> Any:
    """Return a copy with the values of sensitive keys redacted and credentials removed from text."""
    if depth > _MAX_DEPTH:
        return REDACTED
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {key: REDACTED if _SECRET_KEY.search(key) else redact(item, depth + 1) for key, item in members.items()}
    if isinstance(value, list):
        return [redact(item, depth + 1) for item in cast("list[Any]", value)]
    return clean(value, MAX_TEXT) if isinstance(value, str) else value


def encode_content(value: Any) -> str:
    """Encode a value as redacted and truncated JSON."""
    redacted = redact(value)
    if isinstance(redacted, str):
        return redacted
    try:
        return msgspec.json.encode(redacted).decode()[:MAX_TEXT]
    except (TypeError, UnicodeEncodeError):
        return REDACTED


Attributes = list[tuple[str, Any]]
TOOL_ERROR: Final = "tool_error"
_CLIENT_ERRORS: Final = frozenset({-32700, -32600, -32601, -32602, -32002})
"""Errors caused by the client. By the conventions they are not server errors."""

_HTTP_ATTRIBUTES: Final[Attributes] = [
    ("network.transport", "tcp"),
    ("network.protocol.name", "http"),
    ("network.protocol.version", "1.1"),
]

_STAGE_PREFIX: Final = "gatehouse.stage."
_STAGE_ATTRIBUTES: Final = {
    name: f"{_STAGE_PREFIX}{name}"
    for name in (
        "trace", "audit", "limit", "resolve", "validate", "authorize", "approve", "task", "guard", "deadline",
        "share", "dispatch", "end", "edge",
    )
}  # fmt: skip


class SpanFailure(Struct, frozen=True):
    """The failure of a call in the terms of the conventions."""

    type: str
    """`error.type`; empty when the failure does not count as a server error."""
    code: int | None = None
    message: str = ""


class Span(Struct, frozen=True):
    """One span. Times are Unix time in nanoseconds."""

    name: str
    kind: Literal["server", "client", "internal"]
    """A client's request, a request to a remote server, or a call made by a backend."""
    position: TracePosition
    started: int
    ended: int
    attributes: Attributes
    error: str | None = None
    """The status description, when the status is an error."""
    trace_state: str = ""
    """The received W3C tracestate."""
    link: str = ""
    """The `traceparent` of a related span that is not the parent."""

    @property
    def trace_id(self) -> str:
        return self.position.trace_id

    @property
    def duration(self) -> float:
        return (self.ended - self.started) / 1e9


def classify_failure(call: Call, exc: BaseException | None) -> SpanFailure | None:
    """Classify the failure of a call. Returns None for a successful call."""
    match exc:
        case None:
            return SpanFailure(TOOL_ERROR) if call.record.outcome == TOOL_ERROR else None
        case Fault() | ForeignError():
            code, message = rpc_code_of(exc, call), clean(exc.message, 256)
            if code is None:
                return SpanFailure(TOOL_ERROR, None, message)
            return SpanFailure("" if code in _CLIENT_ERRORS else str(code), code, message)
        case asyncio.CancelledError():
            return SpanFailure("cancelled")
        case _:
            return SpanFailure("-32603", -32603)


def stage_times(record: Record, ended: int) -> Iterator[tuple[str, int]]:
    """Yield each stage with the nanoseconds until the next stage started. The last one includes the return path."""
    entered_at = record.entered_at
    return zip(record.stages, map(sub, (*entered_at[1:], ended), entered_at), strict=False)


def is_stage(attribute: str) -> bool:
    """Whether an attribute of a span is the time in a stage."""
    return attribute.startswith(_STAGE_PREFIX)


def call_target(call: Call) -> str:
    """Return the canonical id, or the cleaned text from the client for an unknown name or a URI."""
    route = call.resolved_route
    if route is not None and call.method == "tools/call":
        return route.canonical
    return clean(route.canonical if route else str(call.params.get("name") or call.params.get("uri") or ""), 256)


def build_spans(
    call: Call,
    exc: BaseException | None,
    ended: int,
    offset: int,
    content: Result | None = None,
    *,
    include_content: bool = False,
) -> list[Span]:
    """Return the spans of a call, its own span first.

    `ended` is a time on the clock of the call's record; `offset` converts that clock to Unix time. Arguments and
    `content` are added, redacted, only with `include_content`.
    """
    record = call.record
    position = record.position
    assert position is not None
    failure = classify_failure(call, exc)
    # Only calls made by a backend have no request id.
    is_internal = call.request_id is None
    attributes = _mcp_attributes(call)
    if not is_internal:
        attributes += _HTTP_ATTRIBUTES
    attributes.append(("mcp.protocol.version", call.client.version))
    if (session := call.client.session) is not None and not call.client.modern:
        # Without the tenant prefix: the tenant is a separate attribute.
        attributes.append(("mcp.session.id", session.rpartition(":")[2]))
    if call.request_id is not None:
        attributes.append(("jsonrpc.request.id", clean(str(call.request_id), 128)))
    if call.peer is not None:
        attributes += [("client.address", call.peer[0]), ("client.port", call.peer[1])]
    attributes += _gatehouse_attributes(call)
    if failure is not None:
        _add_failure(attributes, failure.type, failure.code)
    attributes += [
        (_STAGE_ATTRIBUTES.get(name) or f"{_STAGE_PREFIX}{name}", ns / 1e9) for name, ns in stage_times(record, ended)
    ]
    if include_content:
        _add_content(attributes, call, content)
    error = failure.message if failure is not None and failure.type else None
    trace = call.trace
    state, link = (trace.get("tracestate", ""), trace.get(HTTP_TRACEPARENT, "")) if trace else ("", "")
    kind = "internal" if is_internal else "server"
    spans = [
        Span(_span_name(call), kind, position, record.started + offset, ended + offset, attributes, error, state, link)
    ]
    if record.hops:
        spans += [_client_span(call, position, hop, ended, offset) for hop in record.hops]
    return spans


def _span_name(call: Call) -> str:
    """Return the span name. It includes the target only if that exists: client text would make names unbounded."""
    route = call.resolved_route
    return f"{call.method} {route.canonical}" if route and _target_attribute(call) else call.method


_TARGET_ATTRIBUTES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_COMPLETION: Final = "completion/complete"


def _target_attribute(call: Call) -> str | None:
    """Return the attribute for the name of the call's target, if it has one. A completion may be for a prompt."""
    if call.method != _COMPLETION:
        return _TARGET_ATTRIBUTES.get(call.method)
    return "gen_ai.prompt.name" if call.resolved_route and call.params["ref"].get("type") == "ref/prompt" else None


def _mcp_attributes(call: Call) -> Attributes:
    attributes: Attributes = [("mcp.method.name", call.method)]
    if (key := _target_attribute(call)) is not None:
        attributes.append((key, call_target(call)))
        if call.method == "tools/call":
            attributes.append(("gen_ai.operation.name", "execute_tool"))
        return attributes
    source: Any = call.params.get("ref") if call.method == _COMPLETION else call.params
    if isinstance(source, dict) and (uri := cast("Json", source).get("uri")) is not None:
        attributes.append(("mcp.resource.uri", clean(str(uri), 256)))
    return attributes


def _gatehouse_attributes(call: Call) -> Attributes:
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


def _client_span(call: Call, parent: TracePosition, hop: UpstreamHop, ended: int, offset: int) -> Span:
    attributes = _mcp_attributes(call)
    if hop.protocol:
        attributes.append(("mcp.protocol.version", hop.protocol))
    if hop.session is not None:
        attributes.append(("mcp.session.id", hop.session))
    if hop.request_id is not None:
        attributes.append(("jsonrpc.request.id", str(hop.request_id)))
    if hop.transport == "stdio":
        attributes.append(("network.transport", "pipe"))
    else:
        attributes += _HTTP_ATTRIBUTES
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
    position = TracePosition(parent.trace_id, hop.span_id, parent.span_id, parent.sampled)
    ended_at = (hop.ended or ended) + offset
    error = clean(hop.message, 256) if hop.failure else None
    return Span(_span_name(call), "client", position, hop.started + offset, ended_at, attributes, error)


def _add_failure(attributes: Attributes, type: str, code: int | None) -> None:
    if type:
        attributes.append(("error.type", type))
    if code is not None:
        attributes.append(("rpc.response.status_code", str(code)))


def _add_content(attributes: Attributes, call: Call, result: Result | None) -> None:
    if call.method == "tools/call":
        attributes.append(("gen_ai.tool.call.arguments", encode_content(call.arguments)))
        if isinstance(result, dict):
            attributes.append(("gen_ai.tool.call.result", encode_content(result)))
    elif call.method == "prompts/get":
        attributes += [
            (f"gen_ai.prompt.variable.{clean(str(k), 64)}", encode_content(v)) for k, v in call.arguments.items()
        ]
