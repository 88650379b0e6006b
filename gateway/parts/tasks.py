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
        task = asyncio.create_task(_logged(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # One that is cancelled before its first step has not awaited its work, nor will anybody.
        task.add_done_callback(lambda _: work.close())

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # Nobody awaits such a task: what ends it must be seen at least here.
        log.exception("a background task failed")
