"""Helpers that wait for a condition and advance the clock of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

WAIT = 5.0


async def until(condition: Callable[[], Any]) -> Any:
    """Run the event loop until `condition` returns a true value, and return that value."""
    async with asyncio.timeout(WAIT):
        while not (found := condition()):
            await asyncio.sleep(0)
    return found


class Clock:
    """Advances the clock of the running loop, so that its timers fire at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._real_time = self._loop.time
        self._offset = 0.0
        self._loop.time = lambda: self._real_time() + self._offset  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        self._offset += seconds
        fired = asyncio.Event()
        self._loop.call_later(0, fired.set)
        await fired.wait()
        await asyncio.sleep(0)
