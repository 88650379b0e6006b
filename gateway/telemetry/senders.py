"""How encoded telemetry reaches a collector: OTLP over HTTP or gRPC, from the exporter's own thread."""

import importlib
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import httpx

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")

_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
_MOST_WAIT: Final = 60.0


class RetryLater(Exception):
    """It may be taken later; `after` is how many seconds the collector asked to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class ExportRejected(Exception):
    """It will never be taken."""


class OtlpSender(Protocol):
    def send(self, signal: Signal, body: bytes) -> None:
        """Blocks until the collector has it. Raises `TryAgain` or `Rejected`."""
        ...

    def close(self) -> None: ...


class HttpSender:
    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url.rstrip("/")
        # The operator's own address: no guard against private targets, and no proxy of the environment in between.
        self._client = httpx.Client(
            headers={**headers, "content-type": "application/x-protobuf"},
            timeout=timeout,
            verify=url.startswith("https:"),
            trust_env=False,
        )

    def send(self, signal: Signal, body: bytes) -> None:
        try:
            answer = self._client.post(f"{self._url}/v1/{signal}", content=body)
        except httpx.HTTPError as exc:
            raise RetryLater(type(exc).__name__) from exc
        if answer.status_code in _AGAIN:
            raise RetryLater(f"HTTP {answer.status_code}", _seconds(answer.headers.get("retry-after")))
        if not answer.is_success:
            raise ExportRejected(f"HTTP {answer.status_code}")

    def close(self) -> None:
        self._client.close()


_SERVICE: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_AGAIN_GRPC: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)


class GrpcSender:
    """Needs the extra `otlp-grpc`. Raises `ImportError` without it."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        # Loaded only where it is used: it takes 15 MB.
        self._grpc: Any = importlib.import_module("grpc")
        scheme, _, where = url.rstrip("/").partition("://")
        if scheme == "https":
            self._channel = self._grpc.secure_channel(where, self._grpc.ssl_channel_credentials())
        else:
            self._channel = self._grpc.insecure_channel(where)
        self._metadata = [(name.lower(), value) for name, value in headers.items()]
        self._timeout = timeout
        # Without serializers: what goes in and comes out are bytes.
        self._methods = {signal: self._channel.unary_unary(path) for signal, path in _SERVICE.items()}

    def send(self, signal: Signal, body: bytes) -> None:
        try:
            self._methods[signal](body, timeout=self._timeout, metadata=self._metadata)
        except self._grpc.RpcError as exc:
            code = exc.code().name
            if code in _AGAIN_GRPC:
                raise RetryLater(code) from exc
            raise ExportRejected(code) from exc

    def close(self) -> None:
        self._channel.close()


def _seconds(given: str | None) -> float | None:
    try:
        return min(max(0.0, float(given)), _MOST_WAIT) if given is not None else None
    except ValueError:
        return None
