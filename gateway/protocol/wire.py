"""The way back to a client of the modern era, and the pulse that keeps long answers alive."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from gateway.contract import ClientProfile, Json, ResponseWriter
from gateway.errors import Fault, Kind
from gateway.protocol.answer import Header, headers, notification_bytes, readdressed, stream_headers
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
    """JSON at the end, unless something had to be said before: then an event stream.

    A call that has to ask is parked: this answer ends with what is asked, and the next request's takes its place.
    """

    # What most calls never touch stays the class's own: a call sets only what is its own.
    _streaming: asyncio.Lock | None = None
    _finished = False
    _answered: asyncio.Event | None = None
    _task: "asyncio.Task[Any] | None" = None
    _waited = 0.0
    _asked_at: float | None = None
    _late: "tuple[int, bytes, tuple[Header, ...], str | int | None] | None" = None
    gone = False

    def __init__(
        self,
        outlet: ResponseWriter,
        client: ClientProfile,
        correlation_id: str,
        request_id: str | int | None = None,
        ask: "Callable[[ModernWire, Mapping[str, Json]], Awaitable[dict[str, Json]]] | None" = None,
    ) -> None:
        self._outlet = outlet
        self._client = client
        self._correlation_id = correlation_id
        self._ask = ask
        self.request_id = request_id
        self.silent_since = time.monotonic()
        outlet.on_gone(self._lost)

    @property
    def waited(self) -> float:
        return self._waited if self._asked_at is None else self._waited + time.monotonic() - self._asked_at

    def _lost(self) -> None:
        self.gone = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._outlet.cancel()

    async def notify(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            # Logging is an opt-in of each request.
            lowest = self._client.log_level
            if lowest is None or not loud_enough(params.get("level"), lowest):
                return
        await self.write(event(notification_bytes(method, params)))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        if self._ask is None:
            raise Fault(Kind.UNSUPPORTED, "This client cannot be asked.")
        self._asked_at = time.monotonic()
        self._task = asyncio.current_task()
        try:
            return await self._ask(self, requests)
        finally:
            self._waited += time.monotonic() - self._asked_at
            self._asked_at = None

    async def hang_up(self) -> None:
        """Nothing to resume in this era: the stream stays."""

    async def keep_alive(self) -> None:
        await self.write(COMMENT)

    async def write(self, chunk: bytes) -> None:
        """One piece of the stream, in order, after opening it if need be; while the call is parked, nobody hears it."""
        if self._finished:
            return
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
        if self._finished:
            # Parked: whatever the client was asked, the call went on without it. It gets this when it comes back.
            self._late = (status, payload, more, self.request_id)
            return
        self._finished = True
        if self._streaming is None:
            await self._outlet.answer(status, headers(self._correlation_id, *more), payload)
        else:
            async with self._streaming:
                await self._outlet.write(event(payload))
                await self._outlet.close()
        self.let_go()

    async def catch_up(self) -> None:
        """Answer at once with what the call ended with while it was parked, if it did."""
        if self._late is not None:
            (status, payload, more, addressed), self._late = self._late, None
            await self.finish(status, readdressed(payload, addressed, self.request_id), *more)

    def let_go(self) -> None:
        """Whoever waits for the answer to be complete need wait no longer."""
        if self._answered is not None:
            self._answered.set()

    def resume(self, outlet: ResponseWriter, request_id: str | int | None) -> asyncio.Event:
        """Answer to this request from now on; the event is set when that is done.

        Raises `Fault(ILLEGAL_STATE)` while another request is being answered.
        """
        if not self._finished:
            raise Fault(Kind.ILLEGAL_STATE, "Another request goes on with this call already.")
        self._outlet, self.request_id = outlet, request_id
        self._streaming, self._finished, self.gone = None, False, False
        self._answered = asyncio.Event()
        self.silent_since = time.monotonic()
        outlet.on_gone(self._lost)
        return self._answered
