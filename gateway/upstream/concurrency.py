"""Concurrency primitives of the upstream package: single-flight work and a limit on concurrent process starts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MAX_CONCURRENT_STARTS: Final = 8
SLOW_START_SECONDS: Final = 2.0
"""After this time a starting program waits rather than computes; it no longer counts against the limit."""


class SingleFlight(Generic[T]):
    """Calling it joins the run in progress or starts one. A cancelled caller does not cancel the run for the others."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        running = self._running
        if running is None:
            running = self._running = asyncio.create_task(self._work())
            running.add_done_callback(self._finish)
        return await asyncio.shield(running)

    def _finish(self, task: "asyncio.Task[T]") -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # mark as retrieved: every caller may have been cancelled


class StartLimiter:
    """Limits concurrent program starts: each uses a whole CPU, which the gateway needs to serve requests."""

    def __init__(self, limit: int = MAX_CONCURRENT_STARTS, *, slow_after: float = SLOW_START_SECONDS) -> None:
        self._semaphore = asyncio.Semaphore(limit)
        self._slow_after = slow_after

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Wait for a slot, in FIFO order. A start that takes longer than `slow_after` continues but frees its slot."""
        await self._semaphore.acquire()
        with ExitStack() as held:
            held.callback(self._semaphore.release)
            timer = asyncio.get_running_loop().call_later(self._slow_after, held.close)
            held.callback(timer.cancel)
            yield
