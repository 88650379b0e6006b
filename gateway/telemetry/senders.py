"""Sends encoded telemetry to a collector: OTLP over HTTP or gRPC. The senders block; the exporter thread uses them."""

import importlib
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import httpx

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")

_RETRYABLE_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
_MAX_RETRY_AFTER: Final = 60.0


class RetryLater(Exception):
    """The send failed and can be retried. `after` is the delay in seconds that the collector requested."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class ExportRejected(Exception):
    """The collector rejected the data. A retry would fail again."""


class OtlpSender(Protocol):
    """A blocking connection to a collector."""

    def send(self, signal: Signal, body: bytes) -> None:
        """Send one request and wait for the reply. Raises `RetryLater` or `ExportRejected`."""
        ...

    def close(self) -> None: ...


class HttpSender:
    """OTLP over HTTP with protobuf bodies."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url.rstrip("/")
        # The operator chose the URL, so private addresses are allowed. Proxies of the environment are ignored.
        self._client = httpx.Client(
            headers={**headers, "content-type": "application/x-protobuf"},
            timeout=timeout,
            verify=url.startswith("https:"),
            trust_env=False,
        )

    def send(self, signal: Signal, body: bytes) -> None:
        try:
            response = self._client.post(f"{self._url}/v1/{signal}", content=body)
        except httpx.HTTPError as exc:
            raise RetryLater(type(exc).__name__) from exc
        if response.status_code in _RETRYABLE_STATUSES:
            raise RetryLater(f"HTTP {response.status_code}", _parse_retry_after(response.headers.get("retry-after")))
        if not response.is_success:
            raise ExportRejected(f"HTTP {response.status_code}")

    def close(self) -> None:
        self._client.close()


_SERVICE: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_RETRYABLE_CODES: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)


class GrpcSender:
    """OTLP over gRPC. Raises `ImportError` without the extra `otlp-grpc`."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        # Imported only when used: it takes 15 MB of memory.
        self._grpc: Any = importlib.import_module("grpc")
        scheme, _, target = url.rstrip("/").partition("://")
        if scheme == "https":
            self._channel = self._grpc.secure_channel(target, self._grpc.ssl_channel_credentials())
        else:
            self._channel = self._grpc.insecure_channel(target)
        self._metadata = [(name.lower(), value) for name, value in headers.items()]
        self._timeout = timeout
        # No serializers: requests and replies are bytes.
        self._methods = {signal: self._channel.unary_unary(path) for signal, path in _SERVICE.items()}

    def send(self, signal: Signal, body: bytes) -> None:
        try:
            self._methods[signal](body, timeout=self._timeout, metadata=self._metadata)
        except self._grpc.RpcError as exc:
            code = exc.code().name
            if code in _RETRYABLE_CODES:
                raise RetryLater(code) from exc
            raise ExportRejected(code) from exc

    def close(self) -> None:
        self._channel.close()


def _parse_retry_after(value: str | None) -> float | None:
    try:
        return min(max(0.0, float(value)), _MAX_RETRY_AFTER) if value is not None else None
    except ValueError:
        return None
