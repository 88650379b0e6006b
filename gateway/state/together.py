"""Rows that many look up at the same moment, read in one query: a crowd costs the database what one of them does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 500
"""Ids in one query; PostgreSQL and SQLite take many more."""


class Together(Generic[T]):
    """`await together.get(id)`: what `find` said of it in a query that began after it was asked for."""

    def __init__(self, find: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._find = find
        self._waiting: dict[str, asyncio.Future[T | None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def get(self, id: str) -> T | None:
        """None when there is none. Raises what `find` raised."""
        if (answer := self._waiting.get(id)) is None:
            answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        # Whoever gives up waiting does not take the answer from the others.
        return await asyncio.shield(answer)

    async def _look(self) -> None:
        try:
            while self._waiting:
                asked = {id: self._waiting.pop(id) for id in list(self._waiting)[:MOST]}
                try:
                    found = await self._find(list(asked))
                except Exception as exc:  # theirs to know; the next may fare better
                    for answer in asked.values():
                        answer.set_exception(exc)
                        answer.exception()  # looked at: everybody who waited for it may be gone
                else:
                    for id, answer in asked.items():
                        answer.set_result(found.get(id))
        finally:
            self._looking = None
