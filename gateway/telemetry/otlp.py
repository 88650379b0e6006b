"""Encodes spans, metrics and log records as OTLP requests."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from gateway.telemetry.metric_families import Histogram, MetricFamily
from gateway.telemetry.protobuf import (
    any_value,
    double,
    fixed64,
    key_value,
    message,
    number,
    packed_double,
    packed_fixed64,
    text,
)
from gateway.telemetry.span import Span

SCOPE_NAME: Final = "gatehouse"

_KIND: Final = {"internal": number(6, 1), "server": number(6, 2), "client": number(6, 3)}
_CUMULATIVE: Final = number(2, 2)


class LogRecord(Struct, frozen=True):
    """One log record. `at` is Unix time in nanoseconds."""

    at: int
    level: str
    body: str
    attributes: Sequence[tuple[str, Any]] = ()
    trace_id: str = ""
    span_id: str = ""


_SEVERITY: Final = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}


class OtlpEncoder:
    """Encoder of one process. The resource and the scope are encoded once."""

    def __init__(self, resource: Mapping[str, Any], version: str) -> None:
        attributes = b"".join(message(1, key_value(name, value)) for name, value in resource.items())
        self._resource = message(1, attributes)
        self._scope = message(1, text(1, SCOPE_NAME) + text(2, version))

    def traces(self, spans: Iterable[Span]) -> bytes:
        """Encode an `ExportTraceServiceRequest`."""
        return self._request(b"".join(message(2, _span(span)) for span in spans))

    def metrics(self, families: Iterable[MetricFamily], start: int, now: int) -> bytes:
        """Encode an `ExportMetricsServiceRequest`. Counters and histograms are cumulative since `start`."""
        return self._request(b"".join(message(2, _metric(family, start, now)) for family in families if family.points))

    def logs(self, records: Iterable[LogRecord]) -> bytes:
        """Encode an `ExportLogsServiceRequest`."""
        return self._request(b"".join(message(2, _log(record)) for record in records))

    def _request(self, items: bytes) -> bytes:
        # resource_spans = 1 {resource = 1, scope_spans = 2 {scope = 1, spans = 2}}; same for metrics and logs.
        return message(1, self._resource + message(2, self._scope + items))


def _span(span: Span) -> bytes:
    position = span.position
    parts = [
        message(1, bytes.fromhex(position.trace_id)),
        message(2, bytes.fromhex(position.span_id)),
        text(5, span.name),
        _KIND[span.kind],
        fixed64(7, span.started),
        fixed64(8, span.ended),
    ]
    if span.trace_state:
        parts.append(text(3, span.trace_state))
    if position.parent_id:
        parts.append(message(4, bytes.fromhex(position.parent_id)))
    parts += [message(9, key_value(name, value)) for name, value in span.attributes]
    if span.link:
        # "00-<trace>-<span>-<flags>"
        parts.append(
            message(13, message(1, bytes.fromhex(span.link[3:35])) + message(2, bytes.fromhex(span.link[36:52])))
        )
    if span.error is not None:
        parts.append(message(15, text(2, span.error) + number(3, 2)))
    return b"".join(parts)


def _metric(family: MetricFamily, start: int, now: int) -> bytes:
    head = text(1, family.name) + text(2, family.help) + text(3, family.unit)
    times = fixed64(2, start) + fixed64(3, now)
    if family.kind == "histogram":
        points = b"".join(message(1, _histogram(labels, value, times)) for labels, value in family.points.items())
        return head + message(9, points + _CUMULATIVE)
    points = b"".join(
        message(1, times + double(4, float(value)) + _labels(7, labels))
        for labels, value in family.points.items()
        if isinstance(value, (int, float))
    )
    if family.kind == "counter":
        return head + message(7, points + _CUMULATIVE + number(3, 1))
    return head + message(5, points)


def _histogram(labels: tuple[tuple[str, str], ...], value: "Histogram | float", times: bytes) -> bytes:
    assert isinstance(value, Histogram)
    return (
        times
        + fixed64(4, sum(value.counts))
        + double(5, value.total)
        + packed_fixed64(6, value.counts)
        + packed_double(7, list(value.bounds))
        + _labels(9, labels)
    )


def _labels(field: int, labels: tuple[tuple[str, str], ...]) -> bytes:
    return b"".join(message(field, key_value(name, value)) for name, value in labels if value)


def _log(record: LogRecord) -> bytes:
    parts = [
        fixed64(1, record.at),
        number(2, _SEVERITY.get(record.level, 9)),
        text(3, record.level.upper()),
        message(5, any_value(record.body)),
        fixed64(11, record.at),
    ]
    parts += [message(6, key_value(name, value)) for name, value in record.attributes]
    if record.trace_id:
        parts.append(message(9, bytes.fromhex(record.trace_id)))
    if record.span_id:
        parts.append(message(10, bytes.fromhex(record.span_id)))
    return b"".join(parts)
