"""Metrics of all workers that share a port, and the lag of the event loop.

The worker that serves a metrics request collects the metrics of the others over the bus.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.contract import Bus, Json
from gateway.telemetry.metric_families import MetricFamily, family_from_json, sum_families

TOPIC: Final = "metrics"
SAMPLE_INTERVAL: Final = 0.25
SAMPLE_COUNT: Final = 60
ANSWER_TIMEOUT: Final = 2.0
"""Seconds to wait for the other workers. Workers that have not answered by then are left out."""


class WorkerMetrics:
    """Combines the metrics of the workers of one `group`, which share a port. Other pods are scraped separately."""

    def __init__(self, bus: Bus, group: str, count: int, collect: Callable[[], list[MetricFamily]]) -> None:
        self._bus = bus
        self._group = group
        self._count = count
        self._collect = collect

    async def families(self) -> Sequence[MetricFamily]:
        """Return the combined metrics of the group."""
        if self._count < 2:
            return self._collect()
        reply_queue = f"metrics:{secrets.token_hex(8)}"
        request: Json = {"group": self._group, "worker": self._bus.worker, "answers": reply_queue}
        await self._bus.publish(TOPIC, request)
        collected = [self._collect()]
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT):
                while len(collected) < self._count:
                    if (reply := await self._bus.pop(reply_queue, ANSWER_TIMEOUT)) is not None:
                        collected.append([family_from_json(family) for family in reply["families"]])
        return sum_families(collected)

    async def run(self) -> None:
        """Answer the metrics requests of the other workers, until cancelled."""
        if self._count < 2:
            return
        async with self._bus.subscribe(TOPIC) as requests:
            async for request in requests:
                if request["group"] == self._group and request["worker"] != self._bus.worker:
                    families = [family.to_json() for family in self._collect()]
                    await self._bus.push(request["answers"], {"families": families}, ANSWER_TIMEOUT * 2)


class LoopLag:
    """Measures how late the event loop runs its timers."""

    def __init__(self) -> None:
        self._delays: deque[float] = deque(maxlen=SAMPLE_COUNT)

    @property
    def worst(self) -> float:
        """The largest delay of the last 15 seconds."""
        return max(self._delays, default=0.0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_INTERVAL
            await asyncio.sleep(SAMPLE_INTERVAL)
            self._delays.append(max(0.0, loop.time() - due))
