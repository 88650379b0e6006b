"""An OTLP collector over HTTP and gRPC that records requests and can simulate failures."""

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

Behaviour = Literal["healthy", "unavailable", "rejecting", "slow", "resetting"]

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
    """Records the received requests by signal. `behaviour` selects how it answers and can be changed at any time."""

    def __init__(self) -> None:
        self.url = ""
        self.behaviour: Behaviour = "healthy"
        self.attempts = 0
        self.requests: dict[str, list[Any]] = {"traces": [], "metrics": [], "logs": []}
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._changed = threading.Condition()

    def record(self, signal: str, request: Any, headers: dict[str, str]) -> None:
        with self._changed:
            self.requests[signal].append(request)
            self.headers.append(headers)
            self._changed.notify_all()

    def record_attempt(self) -> None:
        with self._changed:
            self.attempts += 1
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], Any], seconds: float = 15.0) -> Any:
        """Wait until `condition()` is true and return its value. Blocks: call it in a thread."""
        with self._changed:
            assert self._changed.wait_for(condition, seconds), "the collector did not receive the expected data"
            return condition()

    # ---- received data ----

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests["traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """Return the latest metric of each name."""
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
            """Do not log requests."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.record_attempt()
            behaviour = collector.behaviour
            if behaviour == "slow":
                collector.released.wait(30)
            if behaviour == "resetting":
                self.connection.close()
                return
            status = {"unavailable": 503, "rejecting": 400}.get(behaviour, 200)
            signal = self.path.removeprefix("/v1/")
            if status == 200:
                collector.record(signal, REQUESTS[signal].FromString(body), dict(self.headers))
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
            """Ignore errors caused by intended resets and disconnected clients."""

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
        def handle(request: Any, context: Any) -> Any:
            collector.record_attempt()
            if collector.behaviour == "slow":
                collector.released.wait(30)
            if collector.behaviour in ("unavailable", "resetting"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "unavailable")
            if collector.behaviour == "rejecting":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "rejected")
            collector.record(signal, request, {key: str(value) for key, value in context.invocation_metadata()})
            return RESPONSES[signal]()

        return handle

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
