"""What calls are counted by. One cell for each kind of call is all that the hot path touches; every family that tells
of calls is added up from the cells when somebody looks.
"""

from bisect import bisect_left
from collections.abc import Callable
from time import monotonic, perf_counter_ns
from typing import Final

from gateway.contract import Call, Record, Result, UpstreamHop
from gateway.telemetry.metric_families import FINE, SECONDS, Histogram, Labels, MetricFamily
from gateway.telemetry.session_metrics import SessionDurations
from gateway.telemetry.span import failure, stage_times

MAX_CELLS: Final = 10_000
"""So many kinds of call are told apart; whatever else comes is counted as `_OTHER`."""
OTHER: Final = "_OTHER"
STAGES_EVERY: Final = 8
"""Of so many calls, one's stages are measured: a share tells as much, at an eighth of the cost."""
_ERRORS: Final = frozenset(
    (
        "", "tool_error", "cancelled", "-32603", "-32000", "-32001", "-32041", "-32042", "-32043", "-32044", "-32800",
        "401", "403", "404", "409", "429", "499", "501", "503", "504",
    )
)  # fmt: skip
"""`error.type` as it is counted; a backend's own codes may be any number."""
_HOP_ERRORS: Final = _ERRORS | {
    "unavailable", "timeout", "too_large", "internal", "-32602", "-32601", "-32600", "-32002",
}  # fmt: skip

Key = tuple[str, str, str, str, str]
"""Tenant, method, canonical id of a tool or prompt, outcome, protocol version."""


class MetricCell:
    """Calls of one kind: how many took how long, and what they failed with by the conventions."""

    __slots__ = ("backend", "error", "times", "tool")

    def __init__(self, backend: str, tool: str, error: str) -> None:
        self.backend = backend
        self.tool = tool
        self.error = error
        self.times = Histogram(SECONDS)


class CallMetrics:
    """Its `told` belongs to the path's end; `families` to whoever looks."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._cells: dict[Key, MetricCell] = {}
        self._hops: dict[tuple[str, str, str, str, str], Histogram] = {}
        self._ways: dict[str, UpstreamHop] = {}
        """The last request to each backend, which tells how it is reached."""
        self._queued: dict[str, Histogram] = {}
        self._stages: dict[str, Histogram] = {}
        self._sessions = SessionDurations(clock)
        self._sessions_there = SessionDurations(clock)
        """Of the gateway with remote servers."""
        self._until_stages = 1

    def told(self, call: Call, result: Result | None = None, exc: BaseException | None = None) -> None:
        record, route, method = call.record, call.route or call.record.late_route, call.method
        ended = perf_counter_ns()
        # A resource's canonical id is its URI, of which there is no end.
        name = route.canonical if route is not None and method in _NAMED else ""
        key = (call.caller.tenant, method, name, record.outcome, call.client.version)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._new_cell(key, call, exc)
        times, seconds = cell.times, (ended - record.started) / 1e9
        times.counts[bisect_left(SECONDS, seconds)] += 1
        times.total += seconds
        if record.hops is not None:
            self._told_hops(call)
        if (session := call.client.session) is not None and not self._sessions.seen(session):
            self._sessions.begin(session, (("mcp.protocol.version", call.client.version), *_OVER_HTTP))
        self._until_stages -= 1
        if not self._until_stages:
            self._until_stages = STAGES_EVERY
            self._time_stages(record, ended)

    def _time_stages(self, record: Record, ended: int) -> None:
        for stage, ns in stage_times(record, ended):
            if (found := self._stages.get(stage)) is None:
                found = self._stages[stage] = Histogram(FINE)
            found.observe(ns / 1e9)

    def _new_cell(self, key: Key, call: Call, exc: BaseException | None) -> MetricCell:
        tenant, method, name, outcome, version = key
        route = call.resolved_route
        backend = route.namespace if route is not None else ""
        if outcome.startswith("error:"):
            # A backend's own codes may be any number.
            outcome = "backend_error"
            if (there := self._cells.get(folded := (tenant, method, name, outcome, version))) is not None:
                return there
            key = folded
        if len(self._cells) >= MAX_CELLS:
            key, backend, name = (OTHER, method, OTHER, outcome, version), OTHER, OTHER
            if (there := self._cells.get(key)) is not None:
                return there
        failed = failure(call, exc)
        error = failed.type if failed is not None else ""
        self._cells[key] = cell = MetricCell(backend, name, error if error in _ERRORS else OTHER)
        return cell

    def _told_hops(self, call: Call) -> None:
        route = call.resolved_route
        tool = route.canonical if route is not None and call.method in _NAMED else ""
        for hop in call.record.hops or ():
            failed = hop.failure if hop.failure in _HOP_ERRORS else OTHER
            key = (hop.backend, call.method, tool, failed, hop.protocol)
            times = self._hops.get(key)
            if times is None:
                self._ways[hop.backend] = hop
                if len(self._hops) >= MAX_CELLS:
                    key = (hop.backend, call.method, OTHER, failed, hop.protocol)
                times = self._hops.setdefault(key, Histogram(SECONDS))
            times.observe(((hop.ended or perf_counter_ns()) - hop.started) / 1e9)
            if (queued := self._queued.get(hop.backend)) is None:
                queued = self._queued[hop.backend] = Histogram(SECONDS)
            queued.observe(hop.queued / 1e9)
            if hop.session is not None and not self._sessions_there.seen(hop.session):
                version = ("mcp.protocol.version", hop.protocol)
                self._sessions_there.begin(hop.session, (version, *_way(hop), ("backend", hop.backend)))

    # ---- for whoever looks ----

    def families(self) -> list[MetricFamily]:
        calls = MetricFamily("gatehouse.calls", "Calls that ended, by what became of them.", "counter")
        lasted = MetricFamily(
            "gatehouse.call.duration", "Seconds that calls took, by tenant and backend.", "histogram", "s"
        )
        refused = MetricFamily("gatehouse.limit.refusals", "Calls refused because of a limit.", "counter")
        server = MetricFamily("mcp.server.operation.duration", "Seconds that requests took.", "histogram", "s")
        for (tenant, method, _, outcome, version), cell in self._cells.items():
            count = sum(cell.times.counts)
            whose, where = ("tenant", tenant), ("backend", cell.backend)
            calls.add(count, whose, where, ("tool", cell.tool), ("method", method), ("outcome", outcome))
            lasted.add(cell.times, whose, where)
            server.add(
                cell.times,
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
                refused.add(count, whose)
        return [server, self._client(), calls, lasted, refused, *self._rest()]

    def _client(self) -> MetricFamily:
        client = MetricFamily("mcp.client.operation.duration", "Seconds that remote servers took.", "histogram", "s")
        for (backend, method, tool, failed, protocol), times in self._hops.items():
            client.add(
                times,
                ("mcp.method.name", method),
                ("gen_ai.tool.name", tool if method == "tools/call" else ""),
                ("gen_ai.prompt.name", tool if method == "prompts/get" else ""),
                ("gen_ai.operation.name", "execute_tool" if method == "tools/call" else ""),
                ("error.type", failed),
                ("mcp.protocol.version", protocol),
                *_way(self._ways[backend]),
                ("backend", backend),
            )
        return client

    def _rest(self) -> list[MetricFamily]:
        stages = MetricFamily(
            "gatehouse.stage.duration", "Seconds in each stage, of every eighth call.", "histogram", "s"
        )
        for stage, times in self._stages.items():
            stages.add(times, ("stage", stage))
        queued = MetricFamily(
            "gatehouse.queue.wait", "Seconds that calls waited for a place at a backend.", "histogram", "s"
        )
        for backend, times in self._queued.items():
            queued.add(times, ("backend", backend))
        here = MetricFamily("mcp.server.session.duration", "Seconds that sessions of clients lasted.", "histogram", "s")
        there = MetricFamily(
            "mcp.client.session.duration", "Seconds that sessions at servers lasted.", "histogram", "s"
        )
        for family, lasted in ((here, self._sessions), (there, self._sessions_there)):
            for about, times in lasted.lasted().items():
                family.add(times, *about)
        sessions = MetricFamily(
            "gatehouse.sessions", "Sessions of the handshake era seen in the last 5 minutes.", "gauge"
        )
        sessions.add(len(self._sessions))
        return [stages, queued, sessions, here, there]


_OVER_HTTP: Final = (("network.transport", "tcp"), ("network.protocol.name", "http"))


def _way(hop: UpstreamHop) -> Labels:
    """How its server is reached."""
    host, port = hop.address or ("", "")
    over = (("network.transport", "pipe"), ("network.protocol.name", "")) if hop.transport == "stdio" else _OVER_HTTP
    return (*over, ("server.address", host), ("server.port", str(port)))


_NAMED: Final = frozenset({"tools/call", "prompts/get"})
