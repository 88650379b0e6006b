"""Things that each wait as long, with one timer for all of them."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_EARLY: Final = 1.0
"""Those that are due within so many seconds go together."""


class Later(Generic[Item]):
    """`due` is called with each item, so many seconds after it was added and at most one too early."""

    def __init__(self, seconds: float, due: Callable[[Item], None]) -> None:
        self._seconds = seconds
        self._due = due
        self._waiting: deque[tuple[float, Item]] = deque()

    def add(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((loop.time() + self._seconds, item))
        if len(self._waiting) == 1:
            loop.call_later(self._seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        soon = loop.time() + _EARLY
        try:
            while self._waiting and self._waiting[0][0] <= soon:
                self._due(self._waiting.popleft()[1])
        finally:  # one that fails is the loop's to log, and keeps none of the others waiting for ever
            if self._waiting:
                loop.call_at(self._waiting[0][0], self._look, loop)
