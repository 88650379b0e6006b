"""A server's lifespan, entered and left in one task of its own: a task group inside it allows no other way."""

import asyncio
from typing import Any

from mcp.server import Server


class Life:
    """`state` is what the lifespan yielded, from `begin` to `end`."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self.state: Any = None

    async def begin(self) -> None:
        """Raises whatever the lifespan raises on its way in."""
        self._task = asyncio.create_task(self._live(), name=f"life:{self._server.name}")
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        self._over.set()
        if self._task is not None:
            await self._task

    async def _live(self) -> None:
        async with self._server.lifespan(self._server) as self.state:
            self._ready.set()
            await self._over.wait()
