"""`python -m bench.telemetry`: measures the CPU cost of telemetry per call.

Covers spans sampled at 1 % and at 100 %, including export and storage, and metrics. Exits with 1 when a maximum is
exceeded.
"""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console

from bench.policy import measure_cpu
from gateway.contract import MODERN, Call, Caller, ClientProfile, Manifest, NullWire, Record, Route
from gateway.contract.trace_position import Sampler
from gateway.telemetry.call_telemetry import SpanRecorder
from gateway.telemetry.export import Exporter
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.otlp import OtlpEncoder
from gateway.telemetry.senders import HttpSender
from gateway.telemetry.trace_store import TraceStore

MAX_US_AT_ONE_PERCENT: Final = 15.0
MAX_US_AT_ALL: Final = 120.0
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
    console.print(
        f"spans at 1 %                   {sampled - baseline:8.2f} µs of CPU (at most {MAX_US_AT_ONE_PERCENT:g})"
    )
    console.print(f"spans at 100 %, with export    {full - baseline:8.2f} µs of CPU (at most {MAX_US_AT_ALL:g})")
    console.print(f"spans at 100 %, no collector   {no_collector - baseline:8.2f} µs of CPU")
    console.print(f"metrics                        {metrics_cost:8.2f} µs of CPU (at most {MAX_US_METRICS:g})")
    passed = (
        sampled - baseline <= MAX_US_AT_ONE_PERCENT
        and full - baseline <= MAX_US_AT_ALL
        and metrics_cost <= MAX_US_METRICS
    )
    return 0 if passed else 1


def _spans(share: float, url: str, folder: Path, times: int = 4_000) -> float:
    """Return the CPU microseconds of one call, including the export and storage threads."""
    exporter = Exporter(HttpSender(url, {}, 5.0), OtlpEncoder({"service.name": "bench"}, "0"), max_queued=times * 2)
    store = TraceStore(folder / f"{share}.db", 64, 3600, interval=0.05)
    sampler, spans = Sampler(share), SpanRecorder([exporter.export_spans, store.add_spans])

    def run_call() -> None:
        call = _call()
        call.record.position = sampler(call.trace)
        spans.record(call, {}, None)

    durations: list[float] = []
    for _ in range(7):
        started = time.process_time()
        for _ in range(times):
            run_call()
        deadline = time.monotonic() + 5
        while (store.waiting or (exporter.waiting and not exporter.failures)) and time.monotonic() < deadline:
            time.sleep(0.01)
        durations.append((time.process_time() - started) / times * 1e6)
    return min(durations)


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
