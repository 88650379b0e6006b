"""Several workers behind one port: whoever is asked for the metrics adds the others' to its own.

How late the event loop is: what every call on it pays before anything else.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.contract import Bus, Json
from gateway.telemetry.metric_families import MetricFamily, read_family, summed

TOPIC: Final = "metrics"

WAIT: Final = 2.0

"""Seconds in which the others must have answered; whoever has not is left out of this reading."""


class WorkerMetrics:
    """`group` names the workers that share a port; other pods are asked by whoever watches, each for itself."""

    def __init__(self, bus: Bus, group: str, count: int, own: Callable[[], list[MetricFamily]]) -> None:
        self._bus = bus
        self._group = group
        self._count = count
        self._own = own

    async def families(self) -> Sequence[MetricFamily]:
        """The whole group's."""
        if self._count < 2:
            return self._own()
        answers = f"metrics:{secrets.token_hex(8)}"
        about: Json = {"group": self._group, "worker": self._bus.worker, "answers": answers}
        await self._bus.publish(TOPIC, about)
        heard = [self._own()]
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT):
                while len(heard) < self._count:
                    if (said := await self._bus.pop(answers, WAIT)) is not None:
                        heard.append([read_family(each) for each in said["families"]])
        return summed(heard)

    async def run(self) -> None:
        """Answer the others, as long as there are any."""
        if self._count < 2:
            return
        async with self._bus.subscribe(TOPIC) as asked:
            async for about in asked:
                if about["group"] == self._group and about["worker"] != self._bus.worker:
                    families = [family.as_json() for family in self._own()]
                    await self._bus.push(about["answers"], {"families": families}, WAIT * 2)


EVERY: Final = 0.25

KEPT: Final = 60


class LoopLag:
    """The worst of the last quarter of a minute."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=KEPT)

    @property
    def worst(self) -> float:
        return max(self._late, default=0.0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            self._late.append(max(0.0, loop.time() - due))
