"""Servers of the tests' own, in the test's process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvicorn

_TURNS = 20
"""Of the loop: enough for connections that are closed to be gone."""


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone, and goes when it is told to; uvicorn's own looks only ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._listening = asyncio.Event()
        self._leaving = asyncio.Event()
        super().__init__(config)

    @asynccontextmanager
    async def running(self, bound: socket.socket | None = None, *, force: bool = False) -> AsyncIterator[int]:
        """Its port, while it listens. With `force`, requests that hang are not waited for."""
        serving = asyncio.create_task(self.serve([bound] if bound is not None else None))
        listening = asyncio.create_task(self._listening.wait())
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        try:
            if serving.done():
                await serving
            yield self.servers[0].sockets[0].getsockname()[1]
        finally:
            self.force_exit = force
            self.should_exit = True
            await serving

    @property
    def should_exit(self) -> bool:  # type: ignore[override]
        return self._leaving.is_set()

    @should_exit.setter
    def should_exit(self, leave: bool) -> None:
        if leave:
            self._leaving.set()

    def capture_signals(self) -> Any:
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()

    async def main_loop(self) -> None:
        ticking = asyncio.create_task(super().main_loop())
        await self._leaving.wait()
        ticking.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if not self.server_state.connections and not self.server_state.tasks:
                await self.lifespan.shutdown()
                return
        if not self.force_exit:
            await super().shutdown(sockets)
