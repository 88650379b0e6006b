"""Exports spans, metrics and log records through the OpenTelemetry SDK. Calls never wait for the export.

A finished call only appends plain records to a bounded queue. The thread `telemetry` converts them and passes them to
the SDK's batch processors, which call the official exporters from threads of their own. Items that do not fit into a
queue are dropped and counted.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint
from typing import Any, Final, TypeVar

from opentelemetry.sdk._logs import ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gateway.telemetry.export_delivery import (
    CountedLogExporter,
    CountedSpanExporter,
    Delivery,
    ExportCounts,
    MetricsThread,
    Signal,
)
from gateway.telemetry.log_records import ExportFailed, LogRecord
from gateway.telemetry.metric_families import MetricFamily
from gateway.telemetry.otlp_exporters import OtlpExporters, failure_reasons
from gateway.telemetry.plugins import EXPORTERS, load_plugin
from gateway.telemetry.sdk_records import SdkRecords
from gateway.telemetry.span import Span

log = logging.getLogger("gatehouse.telemetry")

_Item = TypeVar("_Item")

MAX_QUEUED: Final = 8192
BATCH_SIZE: Final = 1024
SEND_INTERVAL: Final = 1.0
"""Maximum seconds that a span waits before it is sent."""
CLOSE_TIMEOUT: Final = 3.0
"""Maximum seconds to send the remaining items when the gateway stops."""


class CollectorPipeline:
    """The SDK's batch processors with the official exporters of one collector, and a limit on what waits in them.

    A batch processor whose queue is full drops its oldest items without counting them. It never gets that many here.
    """

    def __init__(
        self, exporters: OtlpExporters, records: SdkRecords, counts: ExportCounts, max_queued: int, batch_size: int,
        delay: float,
    ) -> None:  # fmt: skip
        self._max_queued = max_queued
        self._counts = counts
        self._finished_spans, self._finished_logs = Delivery("traces", counts), Delivery("logs", counts)
        self._queued_spans = self._queued_logs = 0
        traces = CountedSpanExporter(exporters.traces, self._finished_spans)
        logs = CountedLogExporter(exporters.logs, self._finished_logs)
        self._exporters = (traces, logs)
        batch_size, delay_ms = min(batch_size, max_queued), delay * 1000
        self._spans = BatchSpanProcessor(traces, max_queued, delay_ms, batch_size)
        self._logs = BatchLogRecordProcessor(
            logs, delay_ms, max_export_batch_size=batch_size, max_queue_size=max_queued
        )
        started = time.time_ns()
        self.metrics = MetricsThread(
            exporters.metrics,
            Delivery("metrics", counts),
            lambda families: records.metrics(families, started, time.time_ns()),
        )

    @property
    def waiting(self) -> int:
        spans, logs = (
            self._queued_spans - self._finished_spans.finished,
            self._queued_logs - self._finished_logs.finished,
        )
        return spans + logs + self.metrics.waiting

    @property
    def has_room_for_span(self) -> bool:
        return self._queued_spans - self._finished_spans.finished < self._max_queued

    @property
    def has_room_for_log(self) -> bool:
        return self._queued_logs - self._finished_logs.finished < self._max_queued

    def put_span(self, span: ReadableSpan) -> None:
        self._queued_spans += 1
        self._spans.on_end(span)

    def put_log(self, record: ReadWriteLogRecord) -> None:
        self._queued_logs += 1
        self._logs.on_emit(record)

    def close(self, deadline: float) -> None:
        """Send what waits until `deadline` on the clock of `time.monotonic`, then give up."""
        self.metrics.stop()
        threads = [threading.Thread(target=each.shutdown, daemon=True) for each in (self._spans, self._logs)]
        for thread in threads:
            thread.start()
        for thread in (*threads, self.metrics):
            thread.join(max(0.0, deadline - time.monotonic()))
        # Ends retries that are still under way.
        for exporter in self._exporters:
            exporter.shutdown()
        self.metrics.abort()


class Exporter:
    """Queues telemetry for the collector and for plugins. The methods `export_*` return immediately."""

    def __init__(
        self,
        records: SdkRecords,
        exporters: OtlpExporters | None,
        plugins: Sequence[SpanProcessor] = (),
        *,
        spans_to_collector: bool = True,
        max_queued: int = MAX_QUEUED,
        batch_size: int = BATCH_SIZE,
        interval: float = SEND_INTERVAL,
    ) -> None:
        self._records = records
        self._plugins = plugins
        self._failed_plugins: set[int] = set()
        self._spans_to_collector = spans_to_collector
        self.takes_spans = bool(plugins) or (exporters is not None and spans_to_collector)
        self._max_queued = max_queued
        self._batch_size = batch_size
        # A span waits in two queues: here and in the batch processor.
        self._interval = interval / 2
        self._counts = ExportCounts()
        self.sent, self.dropped, self.failures = self._counts.sent, self._counts.dropped, self._counts.failures
        self._collector: CollectorPipeline | None = None
        if exporters is not None:
            self._collector = CollectorPipeline(
                exporters, records, self._counts, max_queued, batch_size, self._interval
            )
        self._spans: deque[Span] = deque()
        self._logs: deque[LogRecord] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Items that are neither exported nor dropped yet."""
        collector = self._collector.waiting if self._collector is not None else 0
        return len(self._spans) + len(self._logs) + collector

    def export_spans(self, spans: Sequence[Span]) -> None:
        self._put("traces", self._spans, spans)

    def export_log(self, record: LogRecord) -> None:
        self._put("logs", self._logs, (record,))

    def export_logs(self, records: Sequence[LogRecord]) -> None:
        self._put("logs", self._logs, records)

    def export_metrics(self, families: Sequence[MetricFamily]) -> None:
        """Export the current metrics. They replace metrics that still wait."""
        if self._collector is not None:
            self._collector.metrics.put(families)

    def _put(self, signal: Signal, queue: deque[Any], items: Sequence[Any]) -> None:
        if len(queue) + len(items) > self._max_queued:
            self._counts.add_dropped(signal, len(items))
            return
        queue.extend(items)
        if len(queue) >= self._batch_size and not self._wake.is_set():
            self._wake.set()

    async def close(self) -> None:
        """Send the remaining items, within `CLOSE_TIMEOUT`, and stop."""
        await asyncio.to_thread(self._close, time.monotonic() + CLOSE_TIMEOUT)

    def _close(self, deadline: float) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT)
        closing = [threading.Thread(target=_shut_down, args=(plugin,), daemon=True) for plugin in self._plugins]
        for thread in closing:
            thread.start()
        if self._collector is not None:
            self._collector.close(deadline)
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- the thread `telemetry` ----

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval)
            self._wake.clear()
            self._pass_on()
        self._pass_on()

    def _pass_on(self) -> None:
        """Convert the queued items and pass them to the processors."""
        self._pass_all("traces", self._spans, self._pass_span)
        self._pass_all("logs", self._logs, self._pass_log)

    def _pass_all(self, signal: Signal, queue: deque[_Item], pass_item: Callable[[_Item], bool]) -> None:
        for _ in range(len(queue)):
            try:
                passed = pass_item(queue.popleft())
            except Exception:
                # Keep the thread alive: without it, all later telemetry would be dropped.
                log.exception("telemetry: conversion of %s failed; one item is dropped", signal)
                passed = False
            if not passed:
                self._counts.add_dropped(signal, 1)

    def _pass_span(self, span: Span) -> bool:
        collector = self._collector if self._spans_to_collector else None
        has_room = collector is not None and collector.has_room_for_span
        if has_room or self._plugins:
            readable = self._records.span(span)
            for plugin in self._plugins:
                self._pass_to_plugin(plugin, readable)
            if collector is not None and has_room:
                collector.put_span(readable)
        return has_room or collector is None

    def _pass_log(self, record: LogRecord) -> bool:
        if self._collector is None or not self._collector.has_room_for_log:
            return False
        self._collector.put_log(self._records.emitted_log(record))
        return True

    def _pass_to_plugin(self, plugin: SpanProcessor, span: ReadableSpan) -> None:
        try:
            plugin.on_end(span)
        except Exception:
            if id(plugin) not in self._failed_plugins:
                self._failed_plugins.add(id(plugin))
                log.exception("telemetry: span processor %s failed; logged once", type(plugin).__name__)


def _shut_down(plugin: SpanProcessor) -> None:
    try:
        plugin.shutdown()
    except Exception:
        log.exception("telemetry: span processor %s failed to shut down", type(plugin).__name__)


def load_plugins(plugins: Iterable[EntryPoint]) -> list[SpanProcessor]:
    """Load span processors, and span exporters with a batch processor each. Raises `PluginError`."""
    loaded: list[SpanProcessor] = []
    for plugin in plugins:
        made = load_plugin(plugin)
        loaded.append(BatchSpanProcessor(made) if plugin.group == EXPORTERS else made)
    return loaded


class LogSender:
    """Sends log records and waits until the collector accepted them."""

    def __init__(self, records: SdkRecords, exporters: OtlpExporters) -> None:
        self._records = records
        self._exporters = exporters

    def send(self, records: Iterable[LogRecord]) -> None:
        """Send one batch. Raises `ExportFailed`."""
        failure_reasons.begin()
        result = self._exporters.logs.export([self._records.readable_log(record) for record in records])
        reason = failure_reasons.end()
        if result is not LogRecordExportResult.SUCCESS:
            raise ExportFailed(reason)

    def close(self) -> None:
        for exporter in self._exporters:
            exporter.shutdown()
