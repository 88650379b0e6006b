"""`telemetry:`, what is told of calls to whoever watches."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.settings.base import Section
from gateway.settings.values import Seconds, TenantName


def _collector(given: str | None) -> str | None:
    if given is not None and (urlsplit(given).scheme not in ("http", "https") or not urlsplit(given).hostname):
        raise ValueError("expected an address such as http://127.0.0.1:4318")
    return given


class OtlpSettings(Section):
    """A collector that takes OTLP."""

    url: Annotated[str | None, AfterValidator(_collector)] = Field(
        default=None,
        description="Address of the collector, such as http://127.0.0.1:4318 (4317 for gRPC); none unless given.",
    )
    protocol: Literal["http", "grpc"] = Field(
        default="http", description="Protobuf over HTTP, or gRPC (extra `otlp-grpc`)."
    )
    headers: dict[str, SecretStr] = Field(default={}, description="Headers it wants, such as a token.")
    headers_file: dict[str, Path] = Field(default={}, description="The same, each value in a file.")
    traces: bool = Field(default=True, description="Whether spans are sent.")
    metrics: bool = Field(default=True, description="Whether metrics are sent; /metrics shows them in any case.")
    logs: bool = Field(default=False, description="Whether log records are sent, beside the lines on standard error.")
    audit: bool = Field(
        default=False, description="Whether audit records are sent as log records, once they are committed."
    )
    metrics_interval: Seconds = Field(default=15, description="Seconds between two sendings of the metrics.")
    timeout: Seconds = Field(default=10, description="Seconds it may take to answer.")


class TraceSettings(Section):
    """Which calls are kept as spans. Failures, denials and slow calls always are."""

    share: float = Field(default=0.01, ge=0, le=1, description="Part of the other calls that is kept: 1 is all.")
    slow: Seconds = Field(default=1.0, description="Seconds from which a call counts as slow.")
    follow_parent: bool = Field(
        default=True, description="Whether a client that sends a trace decides if it is recorded."
    )
    content: tuple[TenantName, ...] = Field(
        default=(), description="Tenants whose arguments and results are in their spans, redacted; none unless given."
    )


class TraceStoreSettings(Section):
    """The last spans and log records, on this machine, for `gatehouse trace` and the console."""

    enabled: bool = Field(default=True, description="Whether spans and log records are kept in data_dir.")
    max_mb: float = Field(default=64, gt=0, description="Mebibytes that they may take.")
    max_age: Seconds = Field(default=86400, description="Seconds after which they are dropped.")


class TelemetrySettings(Section):
    """What is told of calls."""

    traces: TraceSettings = Field(default=TraceSettings(), description="Which calls are kept as spans.")
    store: TraceStoreSettings = Field(
        default=TraceStoreSettings(), description="The last spans and log records, on this machine."
    )
    otlp: OtlpSettings = Field(default=OtlpSettings(), description="Where spans, metrics and logs are sent.")
