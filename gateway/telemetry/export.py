"""What is kept goes to a collector from a thread of its own: no call ever waits for it, or fails because of it.

What waits is bounded; what finds no room is dropped and counted.
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

BOUND: Final = 8192
BATCH: Final = 1024
EVERY: Final = 1.0
"""Seconds that a span waits at most before it is sent."""
_BACK_OFF: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
FAREWELL: Final = 3.0
"""Seconds in which the rest is sent when the gateway stops."""


class Exporter:
    """Its methods belong to the event loop's thread, and return at once."""

    def __init__(
        self, sender: OtlpSender, encoder: OtlpEncoder, *, bound: int = BOUND, batch: int = BATCH, every: float = EVERY
    ) -> None:
        self._sender = sender
        self._bound = bound
        self._batch = batch
        self._every = every
        self._began = time.time_ns()
        self._encode: dict[Signal, Callable[[list[Any]], bytes]] = {
            "traces": encoder.traces,
            "logs": encoder.logs,
            "metrics": lambda given: encoder.metrics(given, self._began, time.time_ns()),
        }
        self._queues: dict[Signal, deque[Any]] = {signal: deque() for signal in SIGNALS}
        self._pending: dict[Signal, tuple[bytes, int]] = {}
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Attempts that the collector did not take."""
        self._wake = threading.Event()
        self._stopping = False
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def spans(self, spans: Sequence[Span]) -> None:
        self._put("traces", spans)

    def log(self, record: LogRecord) -> None:
        self._put("logs", (record,))

    def logs(self, records: Sequence[LogRecord]) -> None:
        self._put("logs", records)

    def metrics(self, families: Sequence[MetricFamily]) -> None:
        """Only the newest numbers matter: those that still wait make room."""
        queue = self._queues["metrics"]
        queue.clear()
        queue.extend(families)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    async def close(self) -> None:
        """Send what can be sent within a moment, and stop."""
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, FAREWELL)

    def _put(self, signal: Signal, items: Sequence[Any]) -> None:
        queue = self._queues[signal]
        if len(queue) + len(items) > self._bound:
            self.dropped[signal] += len(items)
            return
        queue.extend(items)
        if len(queue) >= self._batch and not self._wake.is_set() and not self._failed:
            self._wake.set()

    # ---- on the exporter's thread ----

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._every)
            self._wake.clear()
            wait = self._send_all()
            if wait and not self._stopping:
                self._rest(wait)
        self._send_all()
        self._sender.close()

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()

    def _send_all(self) -> float:
        """All that waits; the seconds to leave the collector alone when it did not take it."""
        for signal in SIGNALS:
            while self._next(signal):
                try:
                    self._sender.send(signal, self._pending[signal][0])
                except RetryLater as exc:
                    return self._not_taken(signal, exc)
                except ExportRejected as exc:
                    self.failures[signal] += 1
                    self.dropped[signal] += self._pending.pop(signal)[1]
                    log.warning("the collector refuses %s: %s", signal, exc)
                except Exception:
                    # The thread must not die: without it everything that follows would be dropped.
                    log.exception("%s could not be sent", signal)
                    self.dropped[signal] += self._pending.pop(signal)[1]
                else:
                    self.sent[signal] += self._pending.pop(signal)[1]
                    self._taken()
        return 0.0

    def _next(self, signal: Signal) -> bool:
        """Whether there is something to send: the batch that was not taken before, or a new one."""
        if signal in self._pending:
            return True
        queue, items = self._queues[signal], list[Any]()
        while len(items) < self._batch or signal == "metrics":
            try:
                items.append(queue.popleft())
            except IndexError:
                break
        if items:
            self._pending[signal] = (self._encode[signal](items), len(items))
        return bool(items)

    def _not_taken(self, signal: Signal, exc: RetryLater) -> float:
        self.failures[signal] += 1
        if not self._failed:
            log.warning("the collector cannot be reached (%s); what finds no room meanwhile is dropped", exc)
        wait = _BACK_OFF[min(self._failed, len(_BACK_OFF) - 1)]
        self._failed += 1
        if signal == "metrics":
            del self._pending[signal]  # newer numbers will come
        return wait if exc.after is None else exc.after

    def _taken(self) -> None:
        if self._failed:
            log.info("the collector can be reached again")
            self._failed = 0
