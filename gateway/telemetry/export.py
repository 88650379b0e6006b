"""Exports spans, metrics and log records to a collector from a separate thread. Calls never wait for the export.

The queue of each signal is bounded. Items that do not fit are dropped and counted.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.telemetry.metric_families import MetricFamily
from gateway.telemetry.otlp import LogRecord, OtlpEncoder
from gateway.telemetry.senders import SIGNALS, ExportRejected, OtlpSender, RetryLater, Signal
from gateway.telemetry.span import Span

log = logging.getLogger("gatehouse.telemetry")

MAX_QUEUED: Final = 8192
BATCH_SIZE: Final = 1024
SEND_INTERVAL: Final = 1.0
"""Maximum seconds that a span waits before it is sent."""
_BACKOFF_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
CLOSE_TIMEOUT: Final = 3.0
"""Maximum seconds to send the remaining items when the gateway stops."""


class Exporter:
    """Queues telemetry for a collector. Call its methods on the event loop's thread; they return immediately."""

    def __init__(
        self,
        sender: OtlpSender,
        encoder: OtlpEncoder,
        *,
        max_queued: int = MAX_QUEUED,
        batch_size: int = BATCH_SIZE,
        interval: float = SEND_INTERVAL,
    ) -> None:
        self._sender = sender
        self._max_queued = max_queued
        self._batch_size = batch_size
        self._interval = interval
        self._started_ns = time.time_ns()
        self._encode: dict[Signal, Callable[[list[Any]], bytes]] = {
            "traces": encoder.traces,
            "logs": encoder.logs,
            "metrics": lambda families: encoder.metrics(families, self._started_ns, time.time_ns()),
        }
        self._queues: dict[Signal, deque[Any]] = {signal: deque() for signal in SIGNALS}
        self._pending: dict[Signal, tuple[bytes, int]] = {}
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Failed attempts to send, by signal."""
        self._wake = threading.Event()
        self._stopping = False
        self._consecutive_failures = 0
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def export_spans(self, spans: Sequence[Span]) -> None:
        self._put("traces", spans)

    def export_log(self, record: LogRecord) -> None:
        self._put("logs", (record,))

    def export_logs(self, records: Sequence[LogRecord]) -> None:
        self._put("logs", records)

    def export_metrics(self, families: Sequence[MetricFamily]) -> None:
        """Queue the current metrics. They replace metrics that are still queued."""
        queue = self._queues["metrics"]
        queue.clear()
        queue.extend(families)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    async def close(self) -> None:
        """Send the remaining items, within `CLOSE_TIMEOUT`, and stop."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT)

    def _put(self, signal: Signal, items: Sequence[Any]) -> None:
        queue = self._queues[signal]
        if len(queue) + len(items) > self._max_queued:
            self.dropped[signal] += len(items)
            return
        queue.extend(items)
        if len(queue) >= self._batch_size and not self._wake.is_set() and not self._consecutive_failures:
            self._wake.set()

    # ---- exporter thread ----

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval)
            self._wake.clear()
            delay = self._send_all()
            if delay and not self._stopping:
                self._wait_backoff(delay)
        self._send_all()
        self._sender.close()

    def _wait_backoff(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (remaining := deadline - time.monotonic()) > 0:
            self._wake.wait(remaining)
            self._wake.clear()

    def _send_all(self) -> float:
        """Send all queued items. Returns the seconds to wait before the next attempt; 0 on success."""
        for signal in SIGNALS:
            while self._prepare_batch(signal):
                try:
                    self._sender.send(signal, self._pending[signal][0])
                except RetryLater as exc:
                    return self._handle_retry(signal, exc)
                except ExportRejected as exc:
                    self.failures[signal] += 1
                    self.dropped[signal] += self._pending.pop(signal)[1]
                    log.warning("telemetry: collector rejected %s (%s); the batch is dropped", signal, exc)
                except Exception:
                    # Keep the thread alive: without it, all later telemetry would be dropped.
                    log.exception("telemetry: sending %s failed; the batch is dropped", signal)
                    self.dropped[signal] += self._pending.pop(signal)[1]
                else:
                    self.sent[signal] += self._pending.pop(signal)[1]
                    self._handle_success()
        return 0.0

    def _prepare_batch(self, signal: Signal) -> bool:
        """Encode the next batch, unless a failed one is pending. Returns False when there is nothing to send."""
        if signal in self._pending:
            return True
        queue, items = self._queues[signal], list[Any]()
        while len(items) < self._batch_size or signal == "metrics":
            try:
                items.append(queue.popleft())
            except IndexError:
                break
        if items:
            self._pending[signal] = (self._encode[signal](items), len(items))
        return bool(items)

    def _handle_retry(self, signal: Signal, exc: RetryLater) -> float:
        self.failures[signal] += 1
        if not self._consecutive_failures:
            log.warning("telemetry: collector is not available (%s); items beyond the queue limit are dropped", exc)
        delay = _BACKOFF_SECONDS[min(self._consecutive_failures, len(_BACKOFF_SECONDS) - 1)]
        self._consecutive_failures += 1
        if signal == "metrics":
            del self._pending[signal]  # newer metrics will follow
        return delay if exc.after is None else exc.after

    def _handle_success(self) -> None:
        if self._consecutive_failures:
            log.info("telemetry: collector is available again")
            self._consecutive_failures = 0
