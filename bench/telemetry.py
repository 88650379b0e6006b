"""`python -m bench.telemetry`: measures the CPU cost of telemetry per call.

Covers spans sampled at 1 % and at 100 %, and metrics: on the thread of the call, and with the threads that export and
store. Exits with 1 when a maximum is exceeded.
"""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.console import Console

from bench.policy import measure_cpu
from gateway.contract import MODERN, Call, Caller, ClientProfile, Manifest, NullWire, Record, Route
from gateway.contract.trace_position import Sampler
from gateway.telemetry.call_telemetry import SpanRecorder
from gateway.telemetry.export import Exporter, ExportLimits
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.otlp_exporters import open_exporters
from gateway.telemetry.sdk_records import MIN_STAGE_SECONDS, SdkRecords
from gateway.telemetry.trace_store import TraceStore

MAX_US_AT_ONE_PERCENT: Final = 15.0
MAX_US_OF_CALL: Final = 25.0
"""Maximum on the thread of the call, when each call is sampled."""
MAX_US_AT_ALL: Final = 120.0
"""Maximum of all threads, when each call is sampled. Two thirds of it are the official OTLP encoder."""
MAX_US_METRICS: Final = 5.0
_STAGES: Final = (
    "trace", "audit", "limit", "resolve", "validate", "authorize", "approve", "guard", "deadline", "share", "dispatch",
)  # fmt: skip


class _Module:
    """The attributes of a backend that spans read."""

    namespace = "lab"
    manifest = Manifest()


def main() -> int:
    console = Console()
    with _Collector() as url, TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        sampled, full = _spans(0.01, url, Path(folder)), _spans(1.0, url, Path(folder))
        no_collector = _spans(1.0, "http://127.0.0.1:9", Path(folder))
    metrics = CallMetrics()
    call = _call()
    metrics_cost = measure_cpu(lambda: metrics.record(call), 20_000)
    baseline = measure_cpu(_call, 5_000)
    rows = (
        ("spans at 1 %, all threads", sampled.total - baseline, MAX_US_AT_ONE_PERCENT),
        ("spans at 1 %, call alone", sampled.call - baseline, MAX_US_AT_ONE_PERCENT),
        ("spans at 100 %, all threads", full.total - baseline, MAX_US_AT_ALL),
        ("spans at 100 %, call alone", full.call - baseline, MAX_US_OF_CALL),
        ("  no collector, all threads", no_collector.total - baseline, MAX_US_AT_ALL),
        ("  no collector, call alone", no_collector.call - baseline, MAX_US_OF_CALL),
        ("metrics", metrics_cost, MAX_US_METRICS),
    )
    for name, cost, limit in rows:
        console.print(f"{name:30} {cost:8.2f} µs of CPU (at most {limit:g})")
    return 0 if all(cost <= limit for _, cost, limit in rows) else 1


class _Cost(NamedTuple):
    """CPU microseconds per call: of all threads, and of the thread of the call."""

    total: float
    call: float


def _spans(share: float, url: str, folder: Path, times: int = 4_000) -> _Cost:
    exporters = open_exporters(url, {}, 5.0, "http")
    limits = ExportLimits(max_queued=times * 2)
    records = SdkRecords({"service.name": "bench"}, "0", min_stage_seconds=MIN_STAGE_SECONDS)
    exporter = Exporter(records, exporters, limits=limits)
    store = TraceStore(folder / f"{share}.db", 64, 3600, interval=0.05)
    sampler, spans = Sampler(share), SpanRecorder([exporter.export_spans, store.add_spans])

    def run_call() -> None:
        call = _call()
        call.record.position = sampler(call.trace)
        spans.record(call, {}, None)

    costs: list[_Cost] = []
    for _ in range(7):
        started, own_started = time.process_time(), time.thread_time()
        for _ in range(times):
            run_call()
        own = time.thread_time() - own_started
        deadline = time.monotonic() + 5
        while (store.waiting or (exporter.waiting and not exporter.failures)) and time.monotonic() < deadline:
            time.sleep(0.01)
        costs.append(_Cost((time.process_time() - started) / times * 1e6, own / times * 1e6))
    return _Cost(*map(min, zip(*costs, strict=True)))


def _call() -> Call:
    backend: Any = _Module()
    route = Route("lab", "echo", "lab.echo", "lab_echo", backend, {"name": "echo"})
    caller = Caller("default", "alice")
    record = Record()
    record.decision, record.policies = "allow", ("grant.call",)
    record.stages, record.entered_at = _STAGES, [record.started] * len(_STAGES)
    params = {"name": "lab_echo", "arguments": {"text": "hello"}}
    return Call(
        id="id",
        caller=caller,
        method="tools/call",
        params=params,
        client=ClientProfile(MODERN, {}),
        wire=NullWire(),
        record=record,
        route=route,
        request_id=1,
    )


class _Collector:
    """An OTLP collector in a separate process, so that its CPU is not counted."""

    def __enter__(self) -> str:
        ours, theirs = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(target=_collect, args=(theirs,), daemon=True)
        self._process.start()
        return f"http://127.0.0.1:{ours.recv()}"

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.join()


def _collect(port_pipe: Connection) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port_pipe.send(server.server_address[1])
    server.serve_forever()


if __name__ == "__main__":
    raise SystemExit(main())
