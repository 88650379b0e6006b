"""Traces, metrics and logs, composed for `app.py` from what the settings say.

What can be counted of this worker, and of all that share its port.
"""

import asyncio
import logging
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from fastapi import APIRouter

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus, Call, Result
from gateway.edge.api.authorization import Authenticate
from gateway.edge.ops_routes import metrics_router
from gateway.errors import Fault
from gateway.protocol.subscriptions import Subscriptions
from gateway.settings import Settings
from gateway.settings.telemetry import OtlpSettings
from gateway.stages.trace import Trace
from gateway.state.audit import AuditLog
from gateway.state.audit_chain import LINKED, Linked
from gateway.telemetry.call_telemetry import CallLog, Keep, SpanRecorder
from gateway.telemetry.export import Exporter
from gateway.telemetry.log import LogLines
from gateway.telemetry.metric_families import MetricFamily, as_text
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.otlp import OtlpEncoder
from gateway.telemetry.otlp_log import OtlpHandler, audit_record, call_record
from gateway.telemetry.sampling import Sampler
from gateway.telemetry.senders import GrpcSender, HttpSender, OtlpSender
from gateway.telemetry.trace_store import FILE, StoreHandler, TraceStore
from gateway.telemetry.worker_metrics import LoopLag, WorkerMetrics
from gateway.upstream.bridge import Bridges
from gateway.upstream.health import UpstreamHealth, LoadError
from gateway.wiring.backends import ServedBackends
from gateway.wiring.endpoints import McpProtocol

Gauges = Callable[[], Iterable[MetricFamily]]

_BREAKER: Final = {"closed": 0, "half-open": 1, "open": 2}

_STATES: Final = ("unknown", "up", "failing", "down")

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class TelemetryWiring:
    """What is told of each call, to whom, and what can be asked meanwhile. Raises `LoadError` where an extra lacks."""

    def __init__(self, settings: Settings, version: str, lines: LogLines) -> None:
        told, traces = settings.telemetry, settings.telemetry.traces
        self._version = version
        self._otlp = told.otlp
        self._audit: AuditLog | None = None
        self._exporter = _exporter(told.otlp, version)
        self._handlers: list[logging.Handler] = []
        keepers: list[Keep] = []
        if self._exporter is not None and told.otlp.traces:
            keepers.append(self._exporter.spans)
        self._store: TraceStore | None = None
        if told.store.enabled:
            self._store = TraceStore(settings.data_dir / FILE, told.store.max_mb, told.store.max_age)
            keepers.append(self._store.keep)
            self._listen(StoreHandler(self._store.log))
        self.spans = SpanRecorder(keepers, slow=traces.slow, open=frozenset(traces.content))
        self.calls = CallMetrics()
        self.lag = LoopLag()
        self._gauges: list[Gauges] = [self.calls.families, self._process]
        self._began = time.time()
        self.trace = Trace(Sampler(traces.share, follow_parent=traces.follow_parent), self._tellers(settings, lines))
        self._interval = told.otlp.metrics_interval if self._exporter is not None and told.otlp.metrics else None

    def _tellers(
        self, settings: Settings, lines: LogLines
    ) -> Callable[[Call, Result | None, BaseException | None], None]:
        spans, calls, exporter = self.spans.told, self.calls.told, self._exporter
        line = CallLog(lines.put, settings.log.format).told if settings.log.level in ("debug", "info") else None
        logged = exporter.log if exporter is not None and settings.telemetry.otlp.logs else None
        if logged is not None:
            self._listen(OtlpHandler(logged))

        def told(call: Call, result: Result | None, exc: BaseException | None) -> None:
            spans(call, result, exc)
            calls(call, result, exc)
            if line is not None:
                line(call)
            if logged is not None:
                logged(call_record(call))

        return told

    def audited(self, audit: AuditLog) -> None:
        """Send what is committed there as log records, where the settings say so."""
        if self._exporter is None or not self._otlp.audit:
            return
        logs, loop = self._exporter.logs, asyncio.get_running_loop()

        def committed(linked: Sequence[Linked]) -> None:
            records = [audit_record(dict(zip(LINKED, each, strict=True))) for each in linked]
            with suppress(RuntimeError):  # the loop is closed: nothing is sent any more
                loop.call_soon_threadsafe(logs, records)

        audit.on_commit(committed)
        self._audit = audit

    def _listen(self, handler: logging.Handler) -> None:
        self._handlers.append(handler)
        logging.getLogger().addHandler(handler)

    def watch(self, gauges: Gauges) -> None:
        """Ask these whenever somebody looks."""
        self._gauges.append(gauges)

    def families(self) -> list[MetricFamily]:
        return [family for gauges in self._gauges for family in gauges()]

    def together(self, bus: Bus, workers: int) -> WorkerMetrics:
        """The metrics of all workers that share this one's port."""
        return WorkerMetrics(bus, f"{socket.gethostname()}:{os.getppid()}", workers, self.families)

    async def send_metrics(self, sleep: Callable[[float], Awaitable[Any]]) -> None:
        """To the collector, again and again; each worker sends its own."""
        while self._interval is not None and self._exporter is not None:
            await sleep(self._interval)
            self._exporter.metrics(self.families())

    async def close(self) -> None:
        if self._audit is not None:
            with suppress(Fault):  # what cannot be committed cannot be told either
                await self._audit.flush()
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
        if self._store is not None:
            await self._store.close()
        if self._exporter is not None:
            if self._interval is not None:
                self._exporter.metrics(self.families())
            await self._exporter.close()

    def _process(self) -> list[MetricFamily]:
        build = MetricFamily("gatehouse.build.info", "The version that runs.", "gauge", together="max")
        build.add(1, ("version", self._version))
        began = MetricFamily("process.start.time", "Unix time of the start.", "gauge", "s", "max")
        began.add(self._began)
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = MetricFamily("process.cpu", "Seconds of CPU used.", "counter", "s")
        cpu.add(used.ru_utime + used.ru_stime)
        lag = MetricFamily("gatehouse.event_loop.lag", "Worst delay of the last 15 seconds.", "gauge", "s", "max")
        lag.add(self.lag.worst)
        running = MetricFamily("gatehouse.calls.running", "Calls under way.", "gauge")
        running.add(self.trace.running)
        tasks = MetricFamily("gatehouse.tasks", "Tasks of the event loop.", "gauge")
        tasks.add(len(asyncio.all_tasks()))
        return [build, began, cpu, _memory(), lag, running, tasks, *self._export()]

    def _export(self) -> list[MetricFamily]:
        sent = MetricFamily(
            "gatehouse.telemetry.sent", "Spans, metrics and log records that a collector took.", "counter"
        )
        dropped = MetricFamily("gatehouse.telemetry.dropped", "Those that found no room or were refused.", "counter")
        failed = MetricFamily("gatehouse.telemetry.failures", "Attempts that the collector did not take.", "counter")
        if self._exporter is not None:
            counted = (
                (sent, self._exporter.sent),
                (dropped, self._exporter.dropped),
                (failed, self._exporter.failures),
            )
            for family, counts in counted:
                for signal in ("traces", "metrics", "logs"):
                    family.add(counts[signal], ("signal", signal))
        return [sent, dropped, failed]


def backend_families(healths: Mapping[str, UpstreamHealth], ages: Mapping[str, float]) -> list[MetricFamily]:
    """How each backend is."""
    state = MetricFamily("gatehouse.backend.state", "1 for the state that a backend is in.", "gauge", together="max")
    breaker = MetricFamily("gatehouse.breaker.state", "0 closed, 1 half open, 2 open.", "gauge", together="max")
    running = MetricFamily("gatehouse.backend.calls.running", "Calls under way at a backend.", "gauge")
    waiting = MetricFamily("gatehouse.backend.calls.waiting", "Calls that wait for a place at a backend.", "gauge")
    age = MetricFamily("gatehouse.catalogue.age", "Seconds since a backend's lists were read.", "gauge", "s", "max")
    for namespace, health in healths.items():
        where = ("backend", namespace)
        for each in _STATES:
            state.add(int(health.state == each), where, ("state", each))
        breaker.add(_BREAKER[health.breaker], where)
        running.add(health.in_flight, where)
        waiting.add(health.waiting, where)
        if namespace in ages:
            age.add(ages[namespace], where)
    return [state, breaker, running, waiting, age]


def counted(name: str, help: str, values: Mapping[str, int] | int, label: str = "backend") -> MetricFamily:
    """A gauge of plain counts."""
    family = MetricFamily(name, help, "gauge")
    if isinstance(values, int):
        family.add(values)
    else:
        for key, value in values.items():
            family.add(value, (label, key))
    return family


async def shown(peers: WorkerMetrics) -> str:
    return as_text(await peers.families())


def _memory() -> MetricFamily:
    memory = MetricFamily("process.resident_memory", "Bytes of memory in use.", "gauge", "By")
    with open("/proc/self/statm") as statm:
        memory.add(int(statm.read().split()[1]) * _PAGE)
    return memory


def _exporter(otlp: OtlpSettings, version: str) -> Exporter | None:
    return Exporter(sender(otlp), encoder(version)) if otlp.url is not None else None


def sender(otlp: OtlpSettings) -> OtlpSender:
    """To the collector that is named. Raises `LoadError` where an extra lacks."""
    assert otlp.url is not None
    headers = {name: value.get_secret_value() for name, value in otlp.headers.items()}
    make = GrpcSender if otlp.protocol == "grpc" else HttpSender
    try:
        return make(otlp.url, headers, otlp.timeout)
    except ImportError as exc:
        raise LoadError("telemetry.otlp.protocol: gRPC needs the extra: pip install 'gatehouse[otlp-grpc]'") from exc


def encoder(version: str) -> OtlpEncoder:
    return OtlpEncoder(_resource(version), version)


def _resource(version: str) -> dict[str, Any]:
    """As the SDK finds it out, `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` included."""
    # Loaded only where something is exported: it takes a tenth of a second.
    from opentelemetry.sdk.resources import Resource

    instance = f"{socket.gethostname()}:{os.getpid()}"
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "gatehouse"), "service.version": version}
    return dict(Resource.create({**named, "service.instance.id": instance}).attributes)


def gauges(
    backends: ServedBackends,
    catalogue: Catalogue,
    bridges: Bridges,
    eras: McpProtocol,
    hub: Subscriptions,
    audit: AuditLog,
) -> Gauges:
    """What is asked of the rooms whenever somebody looks."""

    def look() -> list[MetricFamily]:
        healths = backends.healths()
        return [
            *backend_families(healths, catalogue.ages()),
            counted("gatehouse.bridge.peers", "Studios and editors that are connected.", bridges.connected()),
            counted("gatehouse.streams", "Open event streams.", len(eras.streams) + len(hub)),
            counted("gatehouse.parked.calls", "Calls that wait for their client.", len(eras.parking)),
            counted("gatehouse.audit.waiting", "Audit records that are not committed yet.", audit.waiting),
        ]

    return look


def metrics(
    settings: Settings,
    watching: TelemetryWiring,
    bus: Bus,
    authenticate: Authenticate,
    spawn: Callable[[Coroutine[Any, Any, None]], None],
    *,
    free: bool,
) -> APIRouter:
    """The route, and what it needs beside the calls; `free` where only this machine is served."""
    peers = watching.together(bus, settings.server.workers)
    spawn(peers.run())
    spawn(watching.lag.run())
    spawn(watching.send_metrics(asyncio.sleep))
    return metrics_router(partial(shown, peers), authenticate, free=free)
