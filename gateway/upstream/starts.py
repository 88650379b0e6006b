"""Starts of programs, a few at a time: each takes a processor for itself, and the gateway needs one to serve others."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

AT_ONCE: Final = 8
LONG: Final = 2.0
"""Seconds after which a program no longer starts but waits, or hangs: the next need not wait for that."""


class Starts:
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
