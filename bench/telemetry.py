"""What being watched costs a call, alone: CPU for spans at 1 % and at 100 %, export included, and for metrics.

`python -m bench.telemetry`; 1 when something takes more than it may.
"""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console

from bench.policy import best
from gateway.contract import MODERN, Call, Caller, ClientProfile, Manifest, NullWire, Record, Route
from gateway.telemetry.calls import Spans
from gateway.telemetry.export import Exporter
from gateway.telemetry.metrics import CallMetrics
from gateway.telemetry.otlp import Encoder
from gateway.telemetry.sampling import Sampler
from gateway.telemetry.senders import HttpSender
from gateway.telemetry.store import TraceStore

MOST_AT_ONE_PERCENT: Final = 15.0
MOST_AT_ALL: Final = 120.0
MOST_METRICS: Final = 5.0
_STAGES: Final = (
    "trace", "audit", "limit", "resolve", "validate", "authorize", "approve", "guard", "deadline", "share", "dispatch",
)  # fmt: skip


class _Module:
    """As much of a backend as a span reads."""

    namespace = "lab"
    manifest = Manifest()


def main() -> int:
    console = Console()
    with _Collector() as url, TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        low, high = _spans(0.01, url, Path(folder)), _spans(1.0, url, Path(folder))
        dead = _spans(1.0, "http://127.0.0.1:9", Path(folder))
    metrics = CallMetrics()
    call = _call()
    counted = best(lambda: metrics.told(call), 20_000)
    bare = best(_call, 5_000)
    console.print(f"spans at 1 %                   {low - bare:8.2f} µs of CPU (at most {MOST_AT_ONE_PERCENT:g})")
    console.print(f"spans at 100 %, sent and kept  {high - bare:8.2f} µs of CPU (at most {MOST_AT_ALL:g})")
    console.print(f"spans at 100 %, no collector   {dead - bare:8.2f} µs of CPU")
    console.print(f"metrics                        {counted:8.2f} µs of CPU (at most {MOST_METRICS:g})")
    good = low - bare <= MOST_AT_ONE_PERCENT and high - bare <= MOST_AT_ALL and counted <= MOST_METRICS
    return 0 if good else 1


def _spans(share: float, url: str, folder: Path, times: int = 4_000) -> float:
    """The whole process's CPU for one call: the threads that send and that keep are in it."""
    exporter = Exporter(HttpSender(url, {}, 5.0), Encoder({"service.name": "bench"}, "0"), bound=times * 2)
    store = TraceStore(folder / f"{share}.db", 64, 3600, every=0.05)
    sampler, spans = Sampler(share), Spans([exporter.spans, store.keep])

    def one() -> None:
        call = _call()
        call.record.position = sampler(call.trace)
        spans.told(call, {}, None)

    took: list[float] = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(times):
            one()
        until = time.monotonic() + 5
        while (store.waiting or (exporter.waiting and not exporter.failures)) and time.monotonic() < until:
            time.sleep(0.01)
        took.append((time.process_time() - began) / times * 1e6)
    return min(took)


def _call() -> Call:
    backend: Any = _Module()
    route = Route("lab", "echo", "lab.echo", "lab_echo", backend, {"name": "echo"})
    caller = Caller("default", "alice")
    record = Record()
    record.decision, record.policies = "allow", ("grant.call",)
    record.stages, record.marks = _STAGES, [record.started] * len(_STAGES)
    params = {"name": "lab_echo", "arguments": {"text": "hello"}}
    return Call("id", caller, "tools/call", params, ClientProfile(MODERN, {}), NullWire(), record, route, request_id=1)


class _Collector:
    """A process of its own, so that its CPU is not counted."""

    def __enter__(self) -> str:
        ours, theirs = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(target=_collect, args=(theirs,), daemon=True)
        self._process.start()
        return f"http://127.0.0.1:{ours.recv()}"

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.join()


def _collect(told: Connection) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.send(server.server_address[1])
    server.serve_forever()


if __name__ == "__main__":
    raise SystemExit(main())
