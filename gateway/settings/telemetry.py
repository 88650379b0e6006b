"""Section `telemetry`: sampling and local storage of traces, and export to an OpenTelemetry collector."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.settings.base import Section
from gateway.settings.values import Seconds, TenantName


def _check_collector(value: str | None) -> str | None:
    if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
        raise ValueError("expected an address such as http://127.0.0.1:4318")
    return value


class OtlpSettings(Section):
    """Export to an OpenTelemetry collector (OTLP)."""

    url: Annotated[str | None, AfterValidator(_check_collector)] = Field(
        default=None,
        description="URL of the collector, such as http://127.0.0.1:4318 (4317 for gRPC); by default none.",
    )
    protocol: Literal["http", "grpc"] = Field(
        default="http", description="Protobuf over HTTP, or gRPC (extra `otlp-grpc`)."
    )
    headers: dict[str, SecretStr] = Field(default={}, description="Headers of export requests, such as a token.")
    headers_file: dict[str, Path] = Field(default={}, description="Files that contain header values, by header.")
    traces: bool = Field(default=True, description="Whether to export spans.")
    metrics: bool = Field(default=True, description="Whether to export metrics; /metrics is served in either case.")
    logs: bool = Field(default=False, description="Whether to export log records in addition to standard error.")
    audit: bool = Field(default=False, description="Whether to export committed audit records as log records.")
    metrics_interval: Seconds = Field(default=15, description="Seconds between two exports of the metrics.")
    timeout: Seconds = Field(default=10, description="Timeout in seconds of an export.")


class TraceSettings(Section):
    """Sampling of traces. Failed, denied and slow calls are always recorded."""

    share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Fraction of fast, successful calls to record; all others are always recorded.",
    )
    slow: Seconds = Field(default=1.0, description="Duration in seconds from which a call counts as slow.")
    follow_parent: bool = Field(
        default=True, description="Whether to follow the sampling decision in the trace context of the client."
    )
    content: tuple[TenantName, ...] = Field(
        default=(), description="Tenants whose redacted arguments and results are added to spans; by default none."
    )


class TraceStoreSettings(Section):
    """Local store of recent spans and log records, for `gatehouse trace` and the console."""

    enabled: bool = Field(default=True, description="Whether to store spans and log records in data_dir.")
    max_mb: float = Field(default=64, gt=0, description="Maximum size of the store, in MiB.")
    max_age: Seconds = Field(default=86400, description="Seconds after which records are deleted.")


class TelemetrySettings(Section):
    """Traces and metrics."""

    traces: TraceSettings = Field(default=TraceSettings(), description="Sampling of traces.")
    store: TraceStoreSettings = Field(
        default=TraceStoreSettings(), description="Local store of recent spans and log records."
    )
    otlp: OtlpSettings = Field(default=OtlpSettings(), description="Export to an OpenTelemetry collector.")
