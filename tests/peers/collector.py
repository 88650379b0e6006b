"""A real OTLP receiver: the official messages, over HTTP and gRPC, with every fault a collector can have."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

Mood = Literal["well", "unwell", "refusing", "slow", "resetting"]

REQUESTS: dict[str, Any] = {
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
}
RESPONSES: dict[str, Any] = {
    "traces": trace_service_pb2.ExportTraceServiceResponse,
    "metrics": metrics_service_pb2.ExportMetricsServiceResponse,
    "logs": logs_service_pb2.ExportLogsServiceResponse,
}


class Collector:
    """What it took, by signal; `mood` is how it answers from now on."""

    def __init__(self) -> None:
        self.url = ""
        self.mood: Mood = "well"
        self.attempts = 0
        self.requests: dict[str, list[Any]] = {"traces": [], "metrics": [], "logs": []}
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._changed = threading.Condition()

    def took(self, signal: str, request: Any, headers: dict[str, str]) -> None:
        with self._changed:
            self.requests[signal].append(request)
            self.headers.append(headers)
            self._changed.notify_all()

    def tried(self) -> None:
        with self._changed:
            self.attempts += 1
            self._changed.notify_all()

    def until(self, fact: Callable[[], Any], seconds: float = 15.0) -> Any:
        """What `fact` says, once that is true. Blocks: call it in a thread."""
        with self._changed:
            assert self._changed.wait_for(fact, seconds), "the collector never saw it"
            return fact()

    # ---- what is in the requests ----

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests["traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """The newest of each name."""
        return {
            metric.name: metric
            for request in self.requests["metrics"]
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def logs(self) -> list[Any]:
        return [
            record
            for request in self.requests["logs"]
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def resource(self) -> dict[str, Any]:
        return attributes(self.requests["traces"][0].resource_spans[0].resource)


def attributes(item: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in item.attributes}


@contextmanager
def http_collector() -> Generator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.tried()
            mood = collector.mood
            if mood == "slow":
                collector.released.wait(30)
            if mood == "resetting":
                self.connection.close()
                return
            status = {"unwell": 503, "refusing": 400}.get(mood, 200)
            signal = self.path.removeprefix("/v1/")
            if status == 200:
                collector.took(signal, REQUESTS[signal].FromString(body), dict(self.headers))
            answer = RESPONSES[signal]().SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            if status == 503:
                self.send_header("retry-after", "0.1")
            self.end_headers()
            self.wfile.write(answer)

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A reset on purpose, or a client that left."""

    server = Quiet(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_collector() -> Generator[Collector]:
    collector = Collector()

    def export(signal: str) -> Callable[[Any, Any], Any]:
        def exporting(request: Any, context: Any) -> Any:
            collector.tried()
            if collector.mood == "slow":
                collector.released.wait(30)
            if collector.mood in ("unwell", "resetting"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "unwell")
            if collector.mood == "refusing":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
            collector.took(signal, request, {key: str(value) for key, value in context.invocation_metadata()})
            return RESPONSES[signal]()

        return exporting

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return export("traces")(request, context)

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return export("metrics")(request, context)

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return export("logs")(request, context)

    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.stop(0.1).wait()


COLLECTORS: dict[str, Callable[[], Any]] = {"http": http_collector, "grpc": grpc_collector}
