"""A few threads of one's own: work that waits here waits for its own kind, and holds up nobody else's."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.errors import Fault, Kind

T = TypeVar("T")


class ThreadPool:
    """At most `most` at a time, and so many more that wait; whoever comes after that is sent away."""

    def __init__(self, name: str, most: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(most, f"gatehouse-{name}")
        self._room = most + waiting

    async def __call__(self, work: Callable[..., T], *given: object) -> T:
        """What `work` returns. Raises `Fault(UNAVAILABLE)` when too many wait already."""
        if self._room <= 0:
            raise Fault(Kind.UNAVAILABLE, "Too much is being asked at this moment.", retry_after=1)
        self._room -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)
        finally:
            self._room += 1

    async def close(self) -> None:
        """Nothing new is begun; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
