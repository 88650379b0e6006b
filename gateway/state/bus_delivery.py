"""Delivery rules shared by `MemoryBus` and `RedisBus`: subscriber buffers, handler timeouts, limits and faults."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_QUEUE_LENGTH: Final = 256
"""Messages that one queue holds before `push` fails."""
_SUBSCRIBER_BUFFER: Final = 1000


class BusSubscriber:
    """Buffer of one subscriber, read as an endless iterator. A full buffer drops the oldest message."""

    def __init__(self) -> None:
        self._messages: deque[Json] = deque(maxlen=_SUBSCRIBER_BUFFER)
        self._arrived = asyncio.Event()

    def put(self, message: Json) -> None:
        self._messages.append(message)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Json]:
        return self

    async def __anext__(self) -> Json:
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()


async def run_handler(handler: Callable[[Json], Awaitable[Json]] | None, message: Json, timeout: float) -> Json:
    """Return the reply of a handler of this worker.

    Raises `Fault(UNAVAILABLE)` without a handler and `Fault(TIMEOUT)` when the handler exceeds `timeout`.
    """
    if handler is None:
        raise no_handler()
    scope = asyncio.timeout(timeout)
    try:
        async with scope:
            return await handler(message)
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise reply_timeout(timeout) from exc


def no_handler() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The worker that handles this request is no longer running.")


def reply_timeout(seconds: float) -> Fault:
    return Fault(Kind.TIMEOUT, f"No answer from the worker within {seconds:g} s.")


def capacity_exceeded(problem: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, f"{problem} Try again.", retry_after=1.0)
