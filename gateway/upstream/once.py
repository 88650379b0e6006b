"""Work that many may want at the same moment, done once for all of them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """`await once()` joins the run under way, or begins one. Whoever gives up waiting does not end it for others."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        running = self._running
        if running is None:
            running = self._running = asyncio.create_task(self._work())
            running.add_done_callback(self._over)
        return await asyncio.shield(running)

    def _over(self, task: "asyncio.Task[T]") -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # looked at: everybody who waited for it may be gone
