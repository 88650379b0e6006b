"""A uvicorn server for tests that runs in the test process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvicorn

_SHUTDOWN_TURNS = 20
"""Event-loop turns that closed connections need to finish."""


class InProcessServer(uvicorn.Server):
    """Installs no signal handlers and stops at once; uvicorn's own server polls `should_exit` ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._listening = asyncio.Event()
        self._stopping = asyncio.Event()
        super().__init__(config)

    @asynccontextmanager
    async def running(self, bound: socket.socket | None = None, *, force: bool = False) -> AsyncIterator[int]:
        """Serve until the block ends and yield the port. With `force`, do not wait for pending requests."""
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
        return self._stopping.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._stopping.set()

    def capture_signals(self) -> Any:
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()

    async def main_loop(self) -> None:
        uvicorn_loop = asyncio.create_task(super().main_loop())
        await self._stopping.wait()
        uvicorn_loop.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(_SHUTDOWN_TURNS):
            await asyncio.sleep(0)
            if not self.server_state.connections and not self.server_state.tasks:
                await self.lifespan.shutdown()
                return
        if not self.force_exit:
            await super().shutdown(sockets)
