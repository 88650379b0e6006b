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
from typing import Any, Final, Generic, NamedTuple, TypeVar

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

CLOSE_TIMEOUT: Final = 3.0
"""Maximum seconds to send the remaining items when the gateway stops."""


class ExportLimits(NamedTuple):
    """Sizes and times of the export."""

    max_queued: int = 8192
    """Maximum number of spans, and of log records, that wait."""
    batch_size: int = 256
    interval: float = 0.5
    """Seconds that an item waits in each of two queues, at most: the exporter's and the batch processor's."""


class BatchFeed(Generic[_Item]):
    """Plain records that wait for the SDK's batch processor of one signal.

    The processor gets two batches at a time. It would drop items without counting them when its own queue is full,
    and converted items take more memory than plain ones.
    """

    def __init__(self, delivery: Delivery, put: Callable[[_Item], None], max_queued: int, batch_size: int) -> None:
        self._delivery = delivery
        self._put = put
        self._max_queued = max_queued
        self._max_passed = 2 * batch_size
        self._queue: deque[_Item] = deque()
        self._passed = 0

    @property
    def waiting(self) -> int:
        return len(self._queue) + self._passed - self._delivery.finished

    def offer(self, item: _Item) -> bool:
        """Queue an item. Returns False if the queue is full."""
        if len(self._queue) >= self._max_queued:
            return False
        self._queue.append(item)
        return True

    def feed(self, *, everything: bool = False) -> None:
        """Pass items on until the processor holds two batches, or everything before it closes."""
        while self._queue and (everything or self._passed - self._delivery.finished < self._max_passed):
            self._put(self._queue.popleft())
            self._passed += 1


class CollectorPipeline:
    """The SDK's batch processors with the official exporters of one collector."""

    def __init__(
        self,
        exporters: OtlpExporters,
        records: SdkRecords,
        counts: ExportCounts,
        limits: ExportLimits,
        wake: Callable[[], None],
    ) -> None:
        traces, logs = Delivery("traces", counts, wake), Delivery("logs", counts, wake)
        self._exporters = (CountedSpanExporter(exporters.traces, traces), CountedLogExporter(exporters.logs, logs))
        size, delay_ms = min(limits.batch_size, limits.max_queued), limits.interval * 1000
        # Large enough for all that `BatchFeed.feed` passes at the end.
        capacity = limits.max_queued + 2 * size
        self._spans = BatchSpanProcessor(self._exporters[0], capacity, delay_ms, size)
        self._logs = BatchLogRecordProcessor(
            self._exporters[1], delay_ms, max_export_batch_size=size, max_queue_size=capacity
        )
        self.spans = BatchFeed[Span](
            traces, lambda span: self._spans.on_end(records.span(span)), limits.max_queued, size
        )
        self.logs = BatchFeed[LogRecord](
            logs, lambda record: self._logs.on_emit(records.emitted_log(record)), limits.max_queued, size
        )
        started = time.time_ns()
        self.metrics = MetricsThread(
            exporters.metrics,
            Delivery("metrics", counts),
            lambda families: records.metrics(families, started, time.time_ns()),
        )

    @property
    def waiting(self) -> int:
        return self.spans.waiting + self.logs.waiting + self.metrics.waiting

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
        limits: ExportLimits = ExportLimits(),
    ) -> None:
        self._records = records
        self._plugins = plugins
        self._failed_plugins: set[int] = set()
        self._spans_to_collector = spans_to_collector
        self.takes_spans = bool(plugins) or (exporters is not None and spans_to_collector)
        self._max_queued = limits.max_queued
        self._batch_size = limits.batch_size
        self._interval = limits.interval
        self._counts = ExportCounts()
        self.sent, self.dropped, self.failures = self._counts.sent, self._counts.dropped, self._counts.failures
        self._wake = threading.Event()
        self._collector: CollectorPipeline | None = None
        if exporters is not None:
            self._collector = CollectorPipeline(exporters, records, self._counts, limits, self._wake.set)
        self._spans: deque[Span] = deque()
        self._logs: deque[LogRecord] = deque()
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
        self._pass_on(everything=True)

    def _pass_on(self, *, everything: bool = False) -> None:
        """Pass the queued items to the plugins and to the batch processors."""
        try:
            self._count_refused("traces", self._take(self._spans, self._pass_span))
            self._count_refused("logs", self._take(self._logs, self._pass_log))
            if self._collector is not None:
                self._collector.spans.feed(everything=everything)
                self._collector.logs.feed(everything=everything)
        except Exception:
            # Keep the thread alive: without it, all later telemetry would be dropped.
            log.exception("telemetry: conversion failed; an item is dropped")

    def _take(self, queue: deque[_Item], pass_item: Callable[[_Item], bool]) -> int:
        """Pass all items that are queued now. Returns how many did not fit."""
        return sum(not pass_item(queue.popleft()) for _ in range(len(queue)))

    def _count_refused(self, signal: Signal, items: int) -> None:
        if items:
            self._counts.add_dropped(signal, items)

    def _pass_span(self, span: Span) -> bool:
        if self._plugins:
            readable = self._records.span(span)
            for plugin in self._plugins:
                self._pass_to_plugin(plugin, readable)
        return self._collector is None or not self._spans_to_collector or self._collector.spans.offer(span)

    def _pass_log(self, record: LogRecord) -> bool:
        return self._collector is not None and self._collector.logs.offer(record)

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
