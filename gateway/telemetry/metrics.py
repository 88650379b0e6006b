"""Metrics of calls. The hot path updates one cell per kind of call; the families are computed when they are read."""

from bisect import bisect_left
from collections.abc import Callable
from time import monotonic, perf_counter_ns
from typing import Final

from gateway.contract import Call, Record, Result, UpstreamHop
from gateway.telemetry.metric_families import DURATION_BUCKETS, STAGE_BUCKETS, Histogram, Labels, MetricFamily
from gateway.telemetry.session_metrics import SessionDurations
from gateway.telemetry.span import classify_failure, stage_times

MAX_CELLS: Final = 10_000
"""Maximum number of distinct kinds of call. Further kinds are counted as `_OTHER`."""
OTHER: Final = "_OTHER"
STAGE_SAMPLE_INTERVAL: Final = 8
"""Stage durations are recorded for one call in eight, which reduces their cost without changing the distribution."""
_ERRORS: Final = frozenset(
    (
        "", "tool_error", "cancelled", "-32603", "-32000", "-32001", "-32041", "-32042", "-32043", "-32044", "-32800",
        "401", "403", "404", "409", "429", "499", "501", "503", "504",
    )
)  # fmt: skip
"""Values of `error.type` that get their own series. Other codes are counted as `_OTHER`."""
_HOP_ERRORS: Final = _ERRORS | {
    "unavailable", "timeout", "too_large", "internal", "-32602", "-32601", "-32600", "-32002",
}  # fmt: skip

Key = tuple[str, str, str, str, str]
"""Tenant, method, canonical id of a tool or prompt, outcome, protocol version."""


class MetricCell:
    """Durations and error type of one kind of call."""

    __slots__ = ("backend", "durations", "error", "tool")

    def __init__(self, backend: str, tool: str, error: str) -> None:
        self.backend = backend
        self.tool = tool
        self.error = error
        self.durations = Histogram(DURATION_BUCKETS)


class CallMetrics:
    """Counts finished calls. `record` is on the hot path; `families` computes the metrics when they are read."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._cells: dict[Key, MetricCell] = {}
        self._hops: dict[tuple[str, str, str, str, str], Histogram] = {}
        self._last_hops: dict[str, UpstreamHop] = {}
        """The last request to each backend, for its transport labels."""
        self._queued: dict[str, Histogram] = {}
        self._stages: dict[str, Histogram] = {}
        self._sessions = SessionDurations(clock)
        self._upstream_sessions = SessionDurations(clock)
        """Sessions of the gateway at remote servers."""
        self._calls_until_sample = 1

    def record(self, call: Call, result: Result | None = None, exc: BaseException | None = None) -> None:
        record, route, method = call.record, call.route or call.record.late_route, call.method
        ended = perf_counter_ns()
        # The canonical id of a resource is its URI, which is unbounded.
        name = route.canonical if route is not None and method in _NAMED_METHODS else ""
        key = (call.caller.tenant, method, name, record.outcome, call.client.version)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._new_cell(key, call, exc)
        durations, seconds = cell.durations, (ended - record.started) / 1e9
        durations.counts[bisect_left(DURATION_BUCKETS, seconds)] += 1
        durations.total += seconds
        if record.hops is not None:
            self._record_hops(call)
        if (session := call.client.session) is not None and not self._sessions.touch(session):
            self._sessions.begin(session, (("mcp.protocol.version", call.client.version), *_HTTP_LABELS))
        self._calls_until_sample -= 1
        if not self._calls_until_sample:
            self._calls_until_sample = STAGE_SAMPLE_INTERVAL
            self._record_stages(record, ended)

    def _record_stages(self, record: Record, ended: int) -> None:
        for stage, ns in stage_times(record, ended):
            if (histogram := self._stages.get(stage)) is None:
                histogram = self._stages[stage] = Histogram(STAGE_BUCKETS)
            histogram.observe(ns / 1e9)

    def _new_cell(self, key: Key, call: Call, exc: BaseException | None) -> MetricCell:
        tenant, method, name, outcome, version = key
        route = call.resolved_route
        backend = route.namespace if route is not None else ""
        if outcome.startswith("error:"):
            # The error codes of backends are unbounded.
            outcome = "backend_error"
            if (existing := self._cells.get(folded_key := (tenant, method, name, outcome, version))) is not None:
                return existing
            key = folded_key
        if len(self._cells) >= MAX_CELLS:
            key, backend, name = (OTHER, method, OTHER, outcome, version), OTHER, OTHER
            if (existing := self._cells.get(key)) is not None:
                return existing
        failure = classify_failure(call, exc)
        error = failure.type if failure is not None else ""
        self._cells[key] = cell = MetricCell(backend, name, error if error in _ERRORS else OTHER)
        return cell

    def _record_hops(self, call: Call) -> None:
        route = call.resolved_route
        tool = route.canonical if route is not None and call.method in _NAMED_METHODS else ""
        for hop in call.record.hops or ():
            failure = hop.failure if hop.failure in _HOP_ERRORS else OTHER
            key = (hop.backend, call.method, tool, failure, hop.protocol)
            durations = self._hops.get(key)
            if durations is None:
                self._last_hops[hop.backend] = hop
                if len(self._hops) >= MAX_CELLS:
                    key = (hop.backend, call.method, OTHER, failure, hop.protocol)
                durations = self._hops.setdefault(key, Histogram(DURATION_BUCKETS))
            durations.observe(((hop.ended or perf_counter_ns()) - hop.started) / 1e9)
            if (queued := self._queued.get(hop.backend)) is None:
                queued = self._queued[hop.backend] = Histogram(DURATION_BUCKETS)
            queued.observe(hop.queued / 1e9)
            if hop.session is not None and not self._upstream_sessions.touch(hop.session):
                version = ("mcp.protocol.version", hop.protocol)
                self._upstream_sessions.begin(hop.session, (version, *_transport_labels(hop), ("backend", hop.backend)))

    # ---- reading ----

    def families(self) -> list[MetricFamily]:
        calls = MetricFamily("gatehouse.calls", "Finished calls by outcome.", "counter")
        duration = MetricFamily(
            "gatehouse.call.duration", "Duration of calls in seconds, by tenant and backend.", "histogram", "s"
        )
        rejected = MetricFamily("gatehouse.limit.refusals", "Calls rejected by a rate limit.", "counter")
        server = MetricFamily("mcp.server.operation.duration", "Duration of requests in seconds.", "histogram", "s")
        for (tenant, method, _, outcome, version), cell in self._cells.items():
            count = sum(cell.durations.counts)
            tenant_label, backend_label = ("tenant", tenant), ("backend", cell.backend)
            calls.add(count, tenant_label, backend_label, ("tool", cell.tool), ("method", method), ("outcome", outcome))
            duration.add(cell.durations, tenant_label, backend_label)
            server.add(
                cell.durations,
                ("mcp.method.name", method),
                ("gen_ai.tool.name", cell.tool if method == "tools/call" else ""),
                ("gen_ai.prompt.name", cell.tool if method == "prompts/get" else ""),
                ("gen_ai.operation.name", "execute_tool" if method == "tools/call" else ""),
                ("error.type", cell.error),
                ("mcp.protocol.version", version),
                ("network.transport", "tcp"),
                ("network.protocol.name", "http"),
            )
            if outcome == "rate_limited":
                rejected.add(count, tenant_label)
        return [server, self._client_family(), calls, duration, rejected, *self._other_families()]

    def _client_family(self) -> MetricFamily:
        client = MetricFamily(
            "mcp.client.operation.duration", "Duration of requests to remote servers in seconds.", "histogram", "s"
        )
        for (backend, method, tool, failure, protocol), durations in self._hops.items():
            client.add(
                durations,
                ("mcp.method.name", method),
                ("gen_ai.tool.name", tool if method == "tools/call" else ""),
                ("gen_ai.prompt.name", tool if method == "prompts/get" else ""),
                ("gen_ai.operation.name", "execute_tool" if method == "tools/call" else ""),
                ("error.type", failure),
                ("mcp.protocol.version", protocol),
                *_transport_labels(self._last_hops[backend]),
                ("backend", backend),
            )
        return client

    def _other_families(self) -> list[MetricFamily]:
        stages = MetricFamily(
            "gatehouse.stage.duration",
            "Time in each stage in seconds, sampled from one call in eight.",
            "histogram",
            "s",
        )
        for stage, durations in self._stages.items():
            stages.add(durations, ("stage", stage))
        queued = MetricFamily(
            "gatehouse.queue.wait", "Time that calls waited for backend capacity, in seconds.", "histogram", "s"
        )
        for backend, durations in self._queued.items():
            queued.add(durations, ("backend", backend))
        client = MetricFamily(
            "mcp.server.session.duration", "Duration of client sessions in seconds.", "histogram", "s"
        )
        upstream = MetricFamily(
            "mcp.client.session.duration", "Duration of sessions at remote servers in seconds.", "histogram", "s"
        )
        for family, recorded in ((client, self._sessions), (upstream, self._upstream_sessions)):
            for labels, durations in recorded.collect().items():
                family.add(durations, *labels)
        sessions = MetricFamily("gatehouse.sessions", "Handshake-era sessions active in the last 5 minutes.", "gauge")
        sessions.add(len(self._sessions))
        return [stages, queued, sessions, client, upstream]


_HTTP_LABELS: Final = (("network.transport", "tcp"), ("network.protocol.name", "http"))


def _transport_labels(hop: UpstreamHop) -> Labels:
    """Return the labels for the transport and address of a remote server."""
    host, port = hop.address or ("", "")
    transport = (
        (("network.transport", "pipe"), ("network.protocol.name", "")) if hop.transport == "stdio" else _HTTP_LABELS
    )
    return (*transport, ("server.address", host), ("server.port", str(port)))


_NAMED_METHODS: Final = frozenset({"tools/call", "prompts/get"})
