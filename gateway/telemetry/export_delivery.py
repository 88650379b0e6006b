"""Counts what the official exporters deliver, and exports metrics, for which the SDK has no batch processor."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Literal, TypeVar

from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gateway.telemetry.metric_families import MetricFamily
from gateway.telemetry.otlp_exporters import MetricExporter, failure_reasons

log = logging.getLogger("gatehouse.telemetry")

Signal = Literal["traces", "metrics", "logs"]
_Result = TypeVar("_Result", bound=Enum)


class ExportCounts:
    """Items and failed exports by signal. Several threads add to it."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add_sent(self, signal: Signal, items: int) -> None:
        with self._lock:
            self.sent[signal] += items

    def add_dropped(self, signal: Signal, items: int, *, failures: int = 0) -> None:
        with self._lock:
            self.dropped[signal] += items
            self.failures[signal] += failures


class Delivery:
    """Exports batches of one signal, one at a time, and counts them."""

    def __init__(self, signal: Signal, counts: ExportCounts, on_finished: Callable[[], None] = lambda: None) -> None:
        self._signal: Signal = signal
        self._counts = counts
        self._on_finished = on_finished
        self._is_failing = False
        self.finished = 0
        """Items that were exported or lost."""

    def run(self, export: Callable[[], _Result], items: int, success: _Result, failure: _Result) -> _Result:
        """Export a batch. An exception counts as a failure: it must not end the thread of the batches."""
        failure_reasons.begin()
        try:
            result = export()
        except Exception:
            log.exception("telemetry: export of %s raised an exception", self._signal)
            result = failure
        reason = failure_reasons.end()
        if result is success:
            self._counts.add_sent(self._signal, items)
            if self._is_failing:
                log.info("telemetry: collector accepts %s again", self._signal)
        else:
            self._counts.add_dropped(self._signal, items, failures=1)
            if not self._is_failing:
                log.warning("telemetry: collector does not accept %s (%s); they are dropped", self._signal, reason)
        self._is_failing = result is not success
        self.finished += items
        self._on_finished()
        return result


class CountedSpanExporter(SpanExporter):
    """An exporter whose batches are counted. `shutdown` can be called twice."""

    def __init__(self, exporter: SpanExporter, delivery: Delivery) -> None:
        self._exporter = exporter
        self._delivery = delivery
        self._is_closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult
        return self._delivery.run(lambda: self._exporter.export(spans), len(spans), result.SUCCESS, result.FAILURE)

    def shutdown(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()


class CountedLogExporter(LogRecordExporter):
    """An exporter whose batches are counted. `shutdown` can be called twice."""

    def __init__(self, exporter: LogRecordExporter, delivery: Delivery) -> None:
        self._exporter = exporter
        self._delivery = delivery
        self._is_closed = False

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result = LogRecordExportResult
        return self._delivery.run(lambda: self._exporter.export(batch), len(batch), result.SUCCESS, result.FAILURE)

    def shutdown(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class MetricsThread:
    """Exports metrics from a thread of its own. Newer metrics replace those that still wait."""

    def __init__(
        self, exporter: MetricExporter, delivery: Delivery, convert: Callable[[Sequence[MetricFamily]], MetricsData]
    ) -> None:
        self._exporter = exporter
        self._delivery = delivery
        self._convert = convert
        self._families: Sequence[MetricFamily] | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="telemetry-metrics", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._families or ())

    def put(self, families: Sequence[MetricFamily]) -> None:
        self._families = families
        self._wake.set()

    def stop(self) -> None:
        """Export the metrics that wait, then end the thread."""
        self._stopping = True
        self._wake.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def abort(self) -> None:
        """Give up the current export."""
        self._exporter.shutdown()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            stopping = self._stopping
            if families := self._families:
                self._families = None
                self._delivery.run(
                    lambda families=families: self._exporter.export(self._convert(families)),
                    len(families),
                    MetricExportResult.SUCCESS,
                    MetricExportResult.FAILURE,
                )
            if stopping:
                return
