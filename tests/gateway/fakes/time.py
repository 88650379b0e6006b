"""Waiting for a fact, and a clock that can be put forward."""

import asyncio
from collections.abc import Callable
from typing import Any

WAIT = 5.0


async def until(fact: Callable[[], Any]) -> Any:
    """Let the loop turn until the fact holds: for what happens in memory, in a few turns."""
    async with asyncio.timeout(WAIT):
        while not (found := fact()):
            await asyncio.sleep(0)
    return found


class Clock:
    """Puts the running loop's clock forward, so that its timers fall due at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._true = self._loop.time
        self._ahead = 0.0
        self._loop.time = lambda: self._true() + self._ahead  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        self._ahead += seconds
        fired = asyncio.Event()
        self._loop.call_later(0, fired.set)
        await fired.wait()
        await asyncio.sleep(0)
