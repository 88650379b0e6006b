"""Converts spans, metrics and log records to the types of the OpenTelemetry SDK, on the export thread.

The SDK's `_logs` packages are the only place of its logs API, which has no stable release yet (tested with 1.45.1).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from opentelemetry._logs import LogRecord as ApiLogRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LogRecordLimits, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from gateway.telemetry.log_records import LogRecord
from gateway.telemetry.metric_families import Histogram, Labels, MetricFamily
from gateway.telemetry.span import Span, is_stage

SCOPE_NAME: Final = "gatehouse"
SCHEMA_URL: Final = Schemas.V1_40_0.value
"""The conventions that spans and metrics follow."""

_KIND: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_SEVERITY: Final = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_INTEGERS: Final = range(-(2**63), 2**63)
"""The integers that OTLP can represent."""


MIN_STAGE_SECONDS: Final = 1e-4
"""Shortest time in a stage that is exported: most take microseconds, and each attribute costs three to encode."""


class _ResourceHashedOnce(Resource):
    """The SDK's resource serializes its attributes for each hash, and the encoder hashes it for each span."""

    def __init__(self, attributes: dict[str, Any], schema_url: str) -> None:
        super().__init__(attributes, schema_url)
        self._hash = super().__hash__()

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash


class SdkRecords:
    """Converter of one process. `resource` holds attributes in addition to those that the SDK detects."""

    def __init__(
        self, resource: Mapping[str, str], version: str, *, detect: bool = True, min_stage_seconds: float = 0.0
    ) -> None:
        attributes = dict[str, Any](resource)
        made = Resource.create(attributes, SCHEMA_URL) if detect else Resource(attributes, SCHEMA_URL)
        self._resource = _ResourceHashedOnce(dict(made.attributes), made.schema_url)
        self._scope = InstrumentationScope(SCOPE_NAME, version, SCHEMA_URL)
        self._log_limits = LogRecordLimits()
        self._min_stage_seconds = min_stage_seconds

    def span(self, span: Span) -> ReadableSpan:
        position = span.position
        trace_id = int(position.trace_id, 16)
        state = TraceState.from_header([span.trace_state]) if span.trace_state else None
        # All spans that get here are exported, also those that were kept because they failed: the flag says so.
        context = SpanContext(trace_id, int(position.span_id, 16), False, _SAMPLED, state)
        parent = None
        if position.parent_id:
            parent = SpanContext(trace_id, int(position.parent_id, 16), span.kind == "server", _SAMPLED)
        return ReadableSpan(
            name=_text(span.name),
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=_attributes(self._exported(span.attributes)),
            links=(_link(span.link),) if span.link else (),
            kind=_KIND[span.kind],
            status=_UNSET if span.error is None else Status(StatusCode.ERROR, _text(span.error)),
            start_time=span.started,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )

    def _exported(self, attributes: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        least = self._min_stage_seconds
        return [
            (name, value)
            for name, value in attributes
            if value.__class__ is not float or value >= least or not is_stage(name)
        ]

    def metrics(self, families: Iterable[MetricFamily], start: int, now: int) -> MetricsData:
        """Convert the metrics. Counters and histograms are cumulative since `start`."""
        metrics = [_metric(family, start, now) for family in families if family.points]
        scope = ScopeMetrics(self._scope, metrics, SCHEMA_URL)
        return MetricsData([ResourceMetrics(self._resource, [scope], SCHEMA_URL)])

    def emitted_log(self, record: LogRecord) -> ReadWriteLogRecord:
        """Convert for a log record processor."""
        return ReadWriteLogRecord(_log(record), self._resource, self._scope, self._log_limits)

    def readable_log(self, record: LogRecord) -> ReadableLogRecord:
        """Convert for a log record exporter."""
        return ReadableLogRecord(_log(record), self._resource, self._scope, self._log_limits)


def _link(traceparent: str) -> Link:
    # "00-<trace>-<span>-<flags>"
    flags = TraceFlags(int(traceparent[53:55], 16))
    return Link(SpanContext(int(traceparent[3:35], 16), int(traceparent[36:52], 16), True, flags))


def _metric(family: MetricFamily, start: int, now: int) -> Metric:
    data: Sum | Gauge | HistogramData
    if family.kind == "histogram":
        points = [
            _histogram_point(labels, value, start, now)
            for labels, value in family.points.items()
            if isinstance(value, Histogram)
        ]
        data = HistogramData(points, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(_labels(labels), start, now, float(value))
            for labels, value in family.points.items()
            if not isinstance(value, Histogram)
        ]
        counter = family.kind == "counter"
        data = Sum(numbers, AggregationTemporality.CUMULATIVE, True) if counter else Gauge(numbers)
    return Metric(family.name, family.help, family.unit, data)


def _histogram_point(labels: Labels, value: Histogram, start: int, now: int) -> HistogramDataPoint:
    # The smallest and the largest value are optional in OTLP and not recorded here.
    unknown = cast("float", None)
    return HistogramDataPoint(
        attributes=_labels(labels),
        start_time_unix_nano=start,
        time_unix_nano=now,
        count=sum(value.counts),
        sum=value.total,
        bucket_counts=list(value.counts),
        explicit_bounds=value.bounds,
        min=unknown,
        max=unknown,
    )


def _labels(labels: Labels) -> dict[str, str]:
    return {name: _text(value) for name, value in labels if value}


def _log(record: LogRecord) -> ApiLogRecord:
    context = Context()
    if record.trace_id:
        ids = SpanContext(int(record.trace_id, 16), int(record.span_id or "0", 16), False)
        context = set_span_in_context(NonRecordingSpan(ids), context)
    return ApiLogRecord(
        timestamp=record.at,
        observed_timestamp=record.at,
        context=context,
        severity_text=record.level.upper(),
        severity_number=_SEVERITY.get(record.level, SeverityNumber.INFO),
        body=_text(record.body),
        attributes=_attributes(record.attributes),
    )


def _attributes(attributes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {_text(name): _value(value) for name, value in attributes}


def _value(value: Any) -> str | bool | int | float:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bool, float)) or (isinstance(value, int) and value in _INTEGERS):
        return value
    return _text(str(value))


def _text(value: str) -> str:
    """Replace lone surrogates, which a client can send: protobuf would reject the whole batch."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
