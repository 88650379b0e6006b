"""The way back to a client of the modern era, and the pulse that keeps long answers alive."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, Protocol

from gateway.contract import Client, Json, Outlet
from gateway.errors import Fault, Kind
from gateway.protocol.answer import Header, headers, notification_bytes, stream_headers
from gateway.protocol.params import loud_enough
from gateway.sse import COMMENT, event

QUIET_SECONDS: Final = 15.0


class Living(Protocol):
    """An answer under way."""

    silent_since: float

    async def keep_alive(self) -> None: ...


class Pulse:
    """One ticker for all answers under way: whoever has been silent for a while says that it lives."""

    def __init__(self, quiet: float = QUIET_SECONDS) -> None:
        self._quiet = quiet
        self._living: set[Living] = set()
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, living: Living) -> None:
        self._living.add(living)

    def discard(self, living: Living) -> None:
        self._living.discard(living)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._quiet / 3)
            due = time.monotonic() - self._quiet
            for living in [each for each in self._living if each.silent_since < due]:
                task = asyncio.create_task(living.keep_alive())
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)


class ModernWire:
    """JSON at the end, unless something had to be said before: then an event stream."""

    waited = 0.0

    def __init__(self, outlet: Outlet, client: Client, correlation_id: str) -> None:
        self._outlet = outlet
        self._client = client
        self._correlation_id = correlation_id
        self._streaming: asyncio.Lock | None = None
        self._finished = False
        self.gone = False
        self.silent_since = time.monotonic()
        outlet.on_gone(self._lost)

    def _lost(self) -> None:
        self.gone = True
        self._outlet.cancel()

    async def notify(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            # Logging is an opt-in of each request.
            lowest = self._client.log_level
            if lowest is None or not loud_enough(params.get("level"), lowest):
                return
        await self.write(event(notification_bytes(method, params)))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        raise Fault(Kind.UNSUPPORTED, "This revision has no requests to the client; answer with input_required.")

    async def hang_up(self) -> None:
        """Nothing to resume in this era: the stream stays."""

    async def keep_alive(self) -> None:
        if not self._finished:
            await self.write(COMMENT)

    async def write(self, chunk: bytes) -> None:
        """One piece of the stream, in order, after opening it if need be."""
        if self._streaming is None:
            self._streaming = asyncio.Lock()
            async with self._streaming:
                await self._outlet.open(stream_headers(self._correlation_id))
                await self._outlet.write(chunk)
        else:
            async with self._streaming:
                await self._outlet.write(chunk)
        self.silent_since = time.monotonic()

    async def finish(self, status: int, payload: bytes, *more: Header) -> None:
        self._finished = True
        if self._streaming is None:
            await self._outlet.answer(status, headers(self._correlation_id, *more), payload)
            return
        async with self._streaming:
            await self._outlet.write(event(payload))
            await self._outlet.close()
