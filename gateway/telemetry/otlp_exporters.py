"""Builds the official OTLP exporters, and collects the reasons of their failures.

Only public parameters of the exporters are used. They retry a batch with increasing delays until the timeout.
"""

import importlib
import logging
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

from opentelemetry.sdk._logs.export import LogRecordExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace.export import SpanExporter

from gateway.telemetry.log import clean

_PACKAGE: Final = "opentelemetry.exporter.otlp"


class MetricExporter(Protocol):
    """The part of the SDK's `MetricExporter` that is used, with types."""

    def export(self, metrics_data: MetricsData) -> MetricExportResult: ...

    def shutdown(self) -> None: ...


class OtlpExporters(NamedTuple):
    """The exporters of one collector."""

    traces: SpanExporter
    metrics: MetricExporter
    logs: LogRecordExporter


def open_exporters(
    url: str,
    headers: Mapping[str, str],
    timeout: float,
    protocol: Literal["http", "grpc"],
    *,
    proxy: str | None = None,
    tls: ssl.SSLContext | None = None,
    authorities: bytes | None = None,
) -> OtlpExporters:
    """Build the exporters. Connections are opened by the first export. gRPC raises `ImportError` without its extra.

    `proxy` is the URL of an HTTP proxy. `tls` or, for gRPC, `authorities` verify the collector.
    """
    failure_reasons.install()
    package = f"{_PACKAGE}.proto.{protocol}"
    # Imported only when used: each of the two packages takes several megabytes.
    classes: list[Any] = [
        importlib.import_module(f"{package}.trace_exporter").OTLPSpanExporter,
        importlib.import_module(f"{package}.metric_exporter").OTLPMetricExporter,
        importlib.import_module(f"{package}._log_exporter").OTLPLogExporter,
    ]
    lower_case = {name.lower(): value for name, value in headers.items()}
    if protocol == "grpc":
        options: dict[str, Any] = {
            "endpoint": url,
            "insecure": url.startswith("http:"),
            # The operator chose the URL. Proxies of the environment are for other traffic.
            "channel_options": ((("grpc.enable_http_proxy", 0),) if proxy is None else (("grpc.http_proxy", proxy),)),
        }
        if authorities is not None and url.startswith("https:"):
            options["credentials"] = importlib.import_module("grpc").ssl_channel_credentials(authorities)
        return OtlpExporters(*(build(headers=lower_case, timeout=timeout, **options) for build in classes))
    base, session = url.rstrip("/"), importlib.import_module("gateway.telemetry.http_session").CollectorSession
    return OtlpExporters(
        *(
            build(endpoint=f"{base}/v1/{signal}", headers=lower_case, timeout=timeout, session=session(proxy, tls))
            for signal, build in zip(OtlpExporters._fields, classes, strict=True)
        )
    )


class FailureReasons(logging.Handler):
    """Keeps the first message that an exporter logs during an export.

    The exporters report the reason of a failure only in their log, several lines for each batch. Within `begin` and
    `end` those lines are not passed on; the gateway logs one of its own when the state changes. The exporters do not
    repeat a message within 20 seconds: a failure without one has the reason of the last failure.
    """

    def __init__(self) -> None:
        super().__init__()
        self._exports = threading.local()
        self._last_reason = "no reason reported"

    def install(self) -> None:
        logger = logging.getLogger(_PACKAGE)
        if self not in logger.handlers:
            logger.addHandler(self)
            logger.propagate = False

    def begin(self) -> None:
        """Start an export on this thread."""
        self._exports.reason = ""

    def end(self) -> str:
        """Return the reason, if the export failed."""
        reason: str = self._exports.reason
        del self._exports.reason
        return reason or self._last_reason

    def emit(self, record: logging.LogRecord) -> None:
        reason: str | None = getattr(self._exports, "reason", None)
        if reason is None:
            logging.getLogger("opentelemetry").handle(record)
        elif not reason and record.levelno >= logging.WARNING:
            self._exports.reason = self._last_reason = clean(record.getMessage(), 256)


failure_reasons: Final = FailureReasons()
"""Handler of the exporters' loggers, which are global like all loggers."""
