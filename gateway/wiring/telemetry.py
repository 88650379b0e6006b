"""Builds traces, metrics and logs from `telemetry:` and `log:`."""

import asyncio
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus
from gateway.contract.trace_position import Sampler
from gateway.errors import Fault
from gateway.outbound import DIRECT, OutboundRoute
from gateway.protocol.subscriptions import Subscriptions
from gateway.settings import Settings
from gateway.settings.telemetry import OtlpSettings
from gateway.stages.trace import Reporter, Trace
from gateway.state.audit import AuditLog
from gateway.state.audit_chain import LINKED_COLUMNS, LinkedRow
from gateway.telemetry.call_telemetry import CallLog, SpanRecorder, SpanSink
from gateway.telemetry.log import LogLines
from gateway.telemetry.log_records import ExportHandler, LogRecord, audit_record, call_record
from gateway.telemetry.metric_families import MetricFamily, to_prometheus_text
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.plugins import PluginError, find_plugins
from gateway.telemetry.trace_store import FILE, StoreHandler, TraceStore
from gateway.telemetry.worker_metrics import LoopLag, WorkerMetrics
from gateway.upstream.health import LoadError, UpstreamHealth
from gateway.upstream.peers.service import PeerService
from gateway.wiring.backends import ServedBackends
from gateway.wiring.endpoints import McpProtocol
from gateway.wiring.outbound import outbound_route

if TYPE_CHECKING:
    from gateway.telemetry.export import Exporter, LogSender
    from gateway.telemetry.otlp_exporters import OtlpExporters
    from gateway.telemetry.sdk_records import SdkRecords

Gauges = Callable[[], Iterable[MetricFamily]]
_BREAKER: Final = {"closed": 0, "half-open": 1, "open": 2}
_STATES: Final = ("unknown", "up", "failing", "down")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_ANCHOR: Final = "audit log: ends of the hash chains: %s"
_log: Final = logging.getLogger("gatehouse.audit")


class TelemetryWiring:
    """Telemetry of one worker: `trace` reports finished calls, `families` reads the metrics.

    Raises `LoadError` if the settings need an extra that is not installed, or an installed plugin cannot be loaded.
    """

    def __init__(self, settings: Settings, version: str, log_lines: LogLines) -> None:
        telemetry, traces = settings.telemetry, settings.telemetry.traces
        self._version = version
        self._otlp = telemetry.otlp
        self._audit: AuditLog | None = None
        self._exporter = _exporter(telemetry.otlp, version, outbound_route(settings))
        self._handlers: list[logging.Handler] = []
        sinks: list[SpanSink] = []
        if self._exporter is not None and self._exporter.takes_spans:
            sinks.append(self._exporter.export_spans)
        self._store: TraceStore | None = None
        if telemetry.store.enabled:
            self._store = TraceStore(settings.data_dir / FILE, telemetry.store.max_mb, telemetry.store.max_age)
            sinks.append(self._store.add_spans)
            self._add_handler(StoreHandler(self._store.add_log_line))
        self.spans = SpanRecorder(sinks, slow_seconds=traces.slow, content_tenants=frozenset(traces.content))
        self.calls = CallMetrics()
        self.loop_lag = LoopLag()
        self._gauges: list[Gauges] = [self.calls.families, self._process_metrics]
        self._started_at = time.time()
        self.trace = Trace(
            Sampler(traces.share, follow_parent=traces.follow_parent), self._reporters(settings, log_lines)
        )
        exports_metrics = self._exporter is not None and telemetry.otlp.metrics
        self._interval = telemetry.otlp.metrics_interval if exports_metrics else None

    def _reporters(self, settings: Settings, log_lines: LogLines) -> list[Reporter]:
        reporters: list[Reporter] = [self.spans.record, self.calls.record]
        if settings.log.level in ("debug", "info"):
            reporters.append(CallLog(log_lines.put, settings.log.format).record)
        if self._exporter is not None and settings.telemetry.otlp.logs:
            export_log = self._exporter.export_log
            self._add_handler(ExportHandler(export_log))
            reporters.append(lambda call, result, exc: export_log(call_record(call)))
        return reporters

    def export_audit(self, audit: AuditLog) -> None:
        """Log the anchors of the audit log. Export them and the committed records if the settings ask for it."""
        audit.on_anchor(lambda token: _log.info(_ANCHOR, token))
        if self._exporter is None or not self._otlp.audit:
            return
        logs, loop = self._exporter.export_logs, asyncio.get_running_loop()

        def export_committed(linked: Sequence[LinkedRow]) -> None:
            records = [audit_record(dict(zip(LINKED_COLUMNS, each, strict=True))) for each in linked]
            with suppress(RuntimeError):  # the loop is closed: the gateway is shutting down
                loop.call_soon_threadsafe(logs, records)

        def export_anchor(token: str) -> None:
            record = LogRecord(time.time_ns(), "info", _ANCHOR % token, [("event.name", "gatehouse.audit.anchor")])
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(logs, [record])

        audit.on_commit(export_committed)
        if not self._otlp.logs:  # else the line of the log is exported
            audit.on_anchor(export_anchor)
        self._audit = audit

    def _add_handler(self, handler: logging.Handler) -> None:
        self._handlers.append(handler)
        logging.getLogger().addHandler(handler)

    def add_gauges(self, gauges: Gauges) -> None:
        """Read these gauges with every collection."""
        self._gauges.append(gauges)

    def families(self) -> list[MetricFamily]:
        return [family for gauges in self._gauges for family in gauges()]

    def all_workers(self, bus: Bus, workers: int) -> WorkerMetrics:
        """Metrics of all workers that share this port."""
        return WorkerMetrics(bus, f"{socket.gethostname()}:{os.getppid()}", workers, self.families)

    async def send_metrics(self, sleep: Callable[[float], Awaitable[Any]]) -> None:
        """Export the metrics of this worker periodically."""
        while self._interval is not None and self._exporter is not None:
            await sleep(self._interval)
            self._exporter.export_metrics(self.families())

    async def close(self) -> None:
        if self._audit is not None:
            with suppress(Fault):  # records that cannot be committed are not exported
                await self._audit.flush()
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
        if self._store is not None:
            await self._store.close()
        if self._exporter is not None:
            if self._interval is not None:
                self._exporter.export_metrics(self.families())
            await self._exporter.close()

    def _process_metrics(self) -> list[MetricFamily]:
        build = MetricFamily("gatehouse.build.info", "The version that runs.", "gauge", aggregation="max")
        build.add(1, ("version", self._version))
        began = MetricFamily("process.start.time", "Unix time of the start.", "gauge", "s", "max")
        began.add(self._started_at)
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = MetricFamily("process.cpu", "Seconds of CPU used.", "counter", "s")
        cpu.add(used.ru_utime + used.ru_stime)
        lag = MetricFamily("gatehouse.event_loop.lag", "Worst delay of the last 15 seconds.", "gauge", "s", "max")
        lag.add(self.loop_lag.worst)
        running = MetricFamily("gatehouse.calls.running", "Calls under way.", "gauge")
        running.add(self.trace.running)
        tasks = MetricFamily("gatehouse.tasks", "Tasks of the event loop.", "gauge")
        tasks.add(len(asyncio.all_tasks()))
        return [build, began, cpu, _memory_metric(), lag, running, tasks, *self._export_metrics()]

    def _export_metrics(self) -> list[MetricFamily]:
        sent = MetricFamily(
            "gatehouse.telemetry.sent", "Spans, metrics and log records that the collector accepted.", "counter"
        )
        dropped = MetricFamily(
            "gatehouse.telemetry.dropped", "Items dropped: queue full, or not accepted by the collector.", "counter"
        )
        failed = MetricFamily("gatehouse.telemetry.failures", "Exports that failed after all retries.", "counter")
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


def backend_metrics(healths: Mapping[str, UpstreamHealth], ages: Mapping[str, float]) -> list[MetricFamily]:
    """State, breaker, concurrency and list age of each backend."""
    state = MetricFamily("gatehouse.backend.state", "1 for the state that a backend is in.", "gauge", aggregation="max")
    breaker = MetricFamily("gatehouse.breaker.state", "0 closed, 1 half open, 2 open.", "gauge", aggregation="max")
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


def count_gauge(name: str, help: str, values: Mapping[str, int] | int, label: str = "backend") -> MetricFamily:
    """Build a gauge from one count, or from counts by label."""
    family = MetricFamily(name, help, "gauge")
    if isinstance(values, int):
        family.add(values)
    else:
        for key, value in values.items():
            family.add(value, (label, key))
    return family


async def render_metrics(peers: WorkerMetrics, *, with_tenants: bool = True) -> str:
    families = await peers.families()
    return to_prometheus_text(families if with_tenants else [family.without_label("tenant") for family in families])


def _memory_metric() -> MetricFamily:
    memory = MetricFamily("process.resident_memory", "Bytes of memory in use.", "gauge", "By")
    with open("/proc/self/statm") as statm:
        memory.add(int(statm.read().split()[1]) * _PAGE)
    return memory


def _exporter(otlp: OtlpSettings, version: str, route: OutboundRoute) -> "Exporter | None":
    """Build the exporter, if a collector is configured or a plugin is installed."""
    plugins = find_plugins()
    if otlp.url is None and not plugins:
        return None
    # Imported only if something is exported: the SDK and the HTTP exporters take 9 MB.
    from gateway.telemetry.export import Exporter, load_plugins

    try:
        processors = load_plugins(plugins)
    except PluginError as exc:
        raise LoadError(f"telemetry: {exc}") from exc
    exporters = _open_exporters(otlp, otlp.url, route) if otlp.url is not None else None
    return Exporter(_sdk_records(version), exporters, processors, spans_to_collector=otlp.traces)


def open_log_sender(otlp: OtlpSettings, url: str, version: str, route: OutboundRoute = DIRECT) -> "LogSender":
    """Open a connection for log records alone. Raises `LoadError` if an extra is missing."""
    from gateway.telemetry.export import LogSender

    return LogSender(_sdk_records(version), _open_exporters(otlp, url, route))


def _open_exporters(otlp: OtlpSettings, url: str, route: OutboundRoute) -> "OtlpExporters":
    from gateway.telemetry.otlp_exporters import open_exporters

    headers = {name: value.get_secret_value() for name, value in otlp.headers.items()}
    try:
        proxy, has_authorities = route.proxy_for(urlsplit(url).hostname or ""), route.ca_file is not None
        return open_exporters(
            url,
            headers,
            otlp.timeout,
            otlp.protocol,
            proxy=proxy.url if proxy is not None else None,
            tls=route.tls() if has_authorities else None,
            authorities=_authorities(route) if has_authorities else None,
        )
    except ImportError as exc:
        raise LoadError("telemetry.otlp.protocol: gRPC needs the extra otlp-grpc of gatehouse-mcp") from exc


def _authorities(route: OutboundRoute) -> bytes:
    """The certificate authorities of the route as PEM, for gRPC, which takes no TLS context."""
    certificates = route.tls().get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()


def _sdk_records(version: str) -> "SdkRecords":
    """Resource attributes as the SDK detects them, from `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` too."""
    from gateway.telemetry.sdk_records import MIN_STAGE_SECONDS, SdkRecords

    instance = f"{socket.gethostname()}:{os.getpid()}"
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "gatehouse"), "service.version": version}
    return SdkRecords({**named, "service.instance.id": instance}, version, min_stage_seconds=MIN_STAGE_SECONDS)


def build_gauges(
    backends: ServedBackends,
    catalogue: Catalogue,
    peers: PeerService,
    protocol: McpProtocol,
    subscriptions: Subscriptions,
    audit: AuditLog,
) -> Gauges:
    """Return the gauges that read other packages' current state."""

    def read() -> list[MetricFamily]:
        return [
            *backend_metrics(backends.health(), catalogue.ages()),
            count_gauge("gatehouse.bridge.peers", "Peers that are connected.", peers.count_by_backend()),
            count_gauge("gatehouse.streams", "Open event streams.", len(protocol.streams) + len(subscriptions)),
            count_gauge("gatehouse.parked.calls", "Calls that wait for their client.", len(protocol.parked_calls)),
            count_gauge("gatehouse.audit.waiting", "Audit records that are not committed yet.", audit.waiting),
        ]

    return read


def start_metrics(
    settings: Settings, telemetry: TelemetryWiring, bus: Bus, spawn: Callable[[Coroutine[Any, Any, None]], None]
) -> Callable[..., Awaitable[str]]:
    """Start the background tasks of the metrics. Return a function that renders those of all workers as text."""
    peers = telemetry.all_workers(bus, settings.server.workers)
    spawn(peers.run())
    spawn(telemetry.loop_lag.run())
    spawn(telemetry.send_metrics(asyncio.sleep))
    return partial(render_metrics, peers)
