"""Work that many may want at the same moment, done once for all of them.

Starts of programs, a few at a time: each takes a processor for itself, and the gateway needs one to serve others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
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


AT_ONCE: Final = 8

LONG: Final = 2.0

"""Seconds after which a program no longer starts but waits, or hangs: the next need not wait for that."""


class StartLimiter:
    def __init__(self, at_once: int = AT_ONCE, *, long: float = LONG) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._long = long

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """In the order of asking. A turn that takes long goes on, but no longer keeps others from theirs."""
        await self._places.acquire()
        with ExitStack() as held:
            held.callback(self._places.release)
            timer = asyncio.get_running_loop().call_later(self._long, held.close)
            held.callback(timer.cancel)
            yield
