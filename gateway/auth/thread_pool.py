"""A bounded thread pool for one kind of blocking work, such as password hashing.

A separate pool keeps slow work from occupying the threads of other work.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.errors import Fault, Kind

T = TypeVar("T")


class ThreadPool:
    """Runs up to `threads` calls at once and queues up to `max_waiting` more; further calls are rejected."""

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"gatehouse-{name}")
        self._free = threads + max_waiting

    async def __call__(self, work: Callable[..., T], *args: object) -> T:
        """Run `work` in a thread and return its result. Raises `Fault(UNAVAILABLE)` if the queue is full."""
        if self._free <= 0:
            raise Fault(Kind.UNAVAILABLE, "The server is busy. Try again later.", retry_after=1)
        self._free -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        finally:
            self._free += 1

    async def close(self) -> None:
        """Cancel the queued calls. Does not wait for the running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)
