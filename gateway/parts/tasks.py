"""Work that nobody awaits: kept, logged when it fails, cancelled in the end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("gatehouse")


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # Not wrapped in a coroutine of ours: one that is cancelled before it begins would never await it.
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        # Nobody awaits such a task: what ends it must be seen at least here.
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("a background task failed", exc_info=failure)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
