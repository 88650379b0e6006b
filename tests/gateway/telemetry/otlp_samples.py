"""Fixed telemetry and its readable form, for the comparison with the recorded export in `golden/otlp.json`."""

from typing import Any

from gateway.contract import ClientProfile, CurrentCall
from gateway.contract.trace_position import HTTP_TRACEPARENT, TracePosition, UpstreamHop
from gateway.errors import Fault, ForeignError, Kind
from gateway.telemetry.log_records import LogRecord, audit_record
from gateway.telemetry.metric_families import Histogram, MetricFamily
from gateway.telemetry.span import Span, build_spans
from gateway.telemetry.work_span import FinishedWork, build_work_span
from tests.gateway.fakes import ALICE, a_call

RESOURCE = {"service.name": "gatehouse", "service.version": "1.2.3", "service.instance.id": "host:1"}
VERSION = "1.2.3"
START = 1_800_000_000_000_000_000
NOW = START + 60_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
STAGES = ("trace", "limit", "authorize", "dispatch")
_CLIENT_SPAN = "00f067aa0ba902b7"


def spans() -> list[Span]:
    """Spans of each kind: with and without parent, link, tracestate, error and content."""
    work = FinishedWork(
        namespace="lab", name="build \ud800 part",
        call=CurrentCall(ALICE, "cid", 0.0, {}), position=TracePosition(TRACE, "4" * 16, "3" * 16, True),
        started=1_000, ended=9_000,
        attributes={"count": 3, "ratio": 0.5, "done": True, "least": -(2**63), "list": [1, "a"], "none": None},
        exc=ValueError("secret"),
    )  # fmt: skip
    return [
        *_call_spans(TracePosition(TRACE, "1" * 16, "", True)),
        *_call_spans(
            TracePosition(TRACE, "2" * 16, _CLIENT_SPAN, True),
            trace={
                "traceparent": f"00-{TRACE}-{_CLIENT_SPAN}-01",
                "tracestate": "vendor=1,other=a:b",
                HTTP_TRACEPARENT: f"00-{'c' * 32}-{'d' * 16}-01",
            },
            peer=("::1", 50123),
            client=ClientProfile("2025-11-25", {}, session="acme:digest"),
            content=True,
        ),
        *_call_spans(TracePosition(TRACE, "3" * 16, "2" * 16, False), request_id=None, hop=True),
        *_call_spans(TracePosition(TRACE, "5" * 16), exc=Fault(Kind.UNAVAILABLE, "down “now”")),
        *_call_spans(TracePosition(TRACE, "6" * 16), exc=ForeignError(-32602, "bad input")),
        *_call_spans(TracePosition(TRACE, "7" * 16), params={"name": "no \udc00 tool"}, route=None),
        build_work_span(work, START),
    ]


def _call_spans(
    position: TracePosition, exc: BaseException | None = None, *, hop: bool = False, content: bool = False, **more: Any
) -> list[Span]:
    call = a_call(**more)
    record = call.record
    record.position, record.started, record.stages = position, 1_000, STAGES
    record.entered_at, record.decision, record.policies = [1_000, 2_500, 4_000, 8_000], "allow", ("grant.call", "base")
    if isinstance(exc, Fault):
        record.outcome = exc.kind.value
    if hop:
        request = UpstreamHop("lab", "8" * 16, "http", ("10.0.0.1", 3001))
        request.started, request.ended, request.queued = 4_500, 7_500, 1_000_000
        request.protocol, request.session, request.request_id = "2025-11-25", "s1", 7
        request.failure, request.code, request.message = "-32000", -32000, "refused"
        failed = UpstreamHop("lab", "9" * 16, "stdio", None)
        failed.started, failed.ended = 4_500, 7_500
        record.hops = [request, failed]
    result = {"content": [{"type": "text", "text": "ü"}], "token": "hidden"} if content else None
    return build_spans(call, exc, 10_000, START, result, include_content=content)


def families() -> list[MetricFamily]:
    """Each kind of metric, several points, an empty label, and a family without points."""
    calls = MetricFamily("gatehouse.calls", "Finished calls by outcome.", "counter")
    calls.add(3, ("tenant", "acme"), ("tool", ""))
    calls.add(1.5, ("tenant", "beta"), ("tool", "lab.echo"))
    streams = MetricFamily("gatehouse.streams", "Open event streams.", "gauge")
    streams.add(2)
    memory = MetricFamily("process.resident_memory", "Bytes of memory in use.", "gauge", "By")
    memory.add(12_345_678)
    duration = MetricFamily("mcp.server.operation.duration", "Duration of requests in seconds.", "histogram", "s")
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.5, 5.0):
        times.observe(value)
    duration.add(times, ("mcp.method.name", "tools/call"), ("error.type", ""))
    duration.add(Histogram((0.1, 1.0)), ("mcp.method.name", "tools/list"))
    return [calls, streams, memory, duration, MetricFamily("gatehouse.unused", "Without points.", "counter")]


def logs() -> list[LogRecord]:
    audited = {
        "writer": "w1", "sequence": 7, "at": 1_800_000_000.25, "tenant": "acme", "principal": "acme/user:eve",
        "correlation_id": "cid", "method": "tools/call", "target": "lab.echo", "effect": "read", "decision": "deny",
        "policies": "base", "outcome": "denied", "duration_us": 512, "trace_id": TRACE, "context": "", "approved": None,
        "hash": "ab" * 32,
    }  # fmt: skip
    return [
        LogRecord(START, "info", "tools/call lab.echo", [("gatehouse.tenant", "acme"), ("n", 1)], TRACE, "1" * 16),
        LogRecord(START + 1, "error", "broken \ud800 text", [("exception.type", "ValueError")]),
        LogRecord(START + 2, "debug", "", [("flag", True), ("ratio", 0.5)]),
        LogRecord(START + 3, "critical", "end"),
        audit_record(audited),
    ]


# ---- readable form ----


def describe(requests: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the content of decoded OTLP requests, by signal, without the schema URL and the span flags."""
    traces, metrics, records = requests["traces"], requests["metrics"], requests["logs"]
    everything = [*traces, *metrics, *records]
    return {
        "resources": _distinct(_values(each.resource.attributes) for each in _resources(everything)),
        "scopes": _distinct([each.scope.name, each.scope.version] for each in _scopes(everything)),
        "spans": [_span(each) for scope in _scopes(traces) for each in scope.spans],
        "metrics": [_metric(each) for scope in _scopes(metrics) for each in scope.metrics],
        "logs": [_log(each) for scope in _scopes(records) for each in scope.log_records],
    }


def _resources(requests: list[Any]) -> list[Any]:
    """Return the resources of requests of any signal: the first field holds them."""
    return [each for request in requests for each in getattr(request, request.DESCRIPTOR.fields[0].name)]


def _scopes(requests: list[Any]) -> list[Any]:
    """Return the scopes of requests of any signal: the second field of a resource holds them."""
    return [each for resource in _resources(requests) for each in getattr(resource, resource.DESCRIPTOR.fields[1].name)]


def _distinct(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _values(attributes: Any) -> list[list[Any]]:
    """Return names, types and values, in their order."""
    return [
        [each.key, kind := each.value.WhichOneof("value"), getattr(each.value, kind) if kind else None]
        for each in attributes
    ]


def _span(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind,
        "ids": [span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()],
        "trace_state": span.trace_state,
        "times": [span.start_time_unix_nano, span.end_time_unix_nano],
        "attributes": _values(span.attributes),
        "events": len(span.events),
        "links": [[link.trace_id.hex(), link.span_id.hex(), _values(link.attributes)] for link in span.links],
        "status": [span.status.code, span.status.message],
        "dropped": [span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count],
    }


def _metric(metric: Any) -> dict[str, Any]:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    found: dict[str, Any] = {"name": metric.name, "help": metric.description, "unit": metric.unit, "kind": kind}
    if kind != "gauge":
        found["temporality"] = data.aggregation_temporality
    if kind == "sum":
        found["monotonic"] = data.is_monotonic
    found["points"] = [_point(point, kind) for point in data.data_points]
    return found


def _point(point: Any, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"attributes": _values(point.attributes), "exemplars": len(point.exemplars)}
    if kind == "histogram":
        found |= {"count": point.count, "sum": point.sum, "limits": [point.HasField("min"), point.HasField("max")]}
        found |= {"buckets": list(point.bucket_counts), "bounds": list(point.explicit_bounds)}
    else:
        found["value"] = [point.WhichOneof("value"), getattr(point, point.WhichOneof("value"))]
    # The start time of a gauge has no meaning.
    return found if kind == "gauge" else {**found, "start": point.start_time_unix_nano}


def _log(record: Any) -> dict[str, Any]:
    return {
        "times": [record.time_unix_nano, record.observed_time_unix_nano],
        "severity": [record.severity_number, record.severity_text],
        "body": [record.body.WhichOneof("value"), record.body.string_value],
        "attributes": _values(record.attributes),
        "ids": [record.trace_id.hex(), record.span_id.hex()],
    }
