"""The way back to a client of the modern era, and the pulse that keeps long answers alive.

The way back to a client of the handshake era: a stream that it may leave and resume, and that can ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from gateway.contract import ClientProfile, Json, ResponseWriter
from gateway.errors import Fault, Kind
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.event_streams import EventStream, EventStreams
from gateway.protocol.messages import loud_enough
from gateway.protocol.responses import Header, headers, notification_bytes, readdressed, stream_headers
from gateway.sse import COMMENT, event

QUIET_SECONDS: Final = 15.0


class KeepAliveStream(Protocol):
    """An answer under way."""

    silent_since: float

    async def keep_alive(self) -> None: ...


class KeepAlive:
    """One ticker for all answers under way: whoever has been silent for a while says that it lives."""

    def __init__(self, quiet: float = QUIET_SECONDS) -> None:
        self._quiet = quiet
        self._living: set[KeepAliveStream] = set()
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, living: KeepAliveStream) -> None:
        self._living.add(living)

    def discard(self, living: KeepAliveStream) -> None:
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


_PRIMED_SINCE: Final = "2025-11-25"

_EVENTS: Final = "text/event-stream"


class LegacyWire:
    """JSON at the end, unless something had to be said before, or the client likes streams better: then a stream.

    A client that accepts no streams is told nothing before the end, and cannot be asked.
    """

    _stream: EventStream | None = None
    _finished = False
    _waited = 0.0
    _asked_at: float | None = None

    def __init__(
        self,
        outlet: ResponseWriter,
        client: ClientProfile,
        correlation_id: str,
        streams: EventStreams,
        asking: ClientRequests,
        accept: str = "*/*",
        principal: str = "",
    ) -> None:
        """`accept` is the header as it came; `principal` is whose the stream is, if there has to be one."""
        self._accept = accept
        self._principal = principal
        self._outlet = outlet
        self._client = client
        self._correlation_id = correlation_id
        self._streams = streams
        self._asking = asking
        self.silent_since = time.monotonic()

    @property
    def waited(self) -> float:
        now = self._waited
        return now if self._asked_at is None else now + time.monotonic() - self._asked_at

    async def notify(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            lowest = self._client.log_level
            if lowest is not None and not loud_enough(params.get("level"), lowest):
                return
        if self._takes_streams():
            await self._send(notification_bytes(method, params))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        if not self._takes_streams():
            raise Fault(Kind.UNSUPPORTED, "The client cannot be asked: it accepts no event stream.")
        self._asked_at = time.monotonic()
        try:
            return await self._asking.ask(self._client.session or "", self._client.capabilities, requests, self._send)
        finally:
            self._waited += time.monotonic() - self._asked_at
            self._asked_at = None

    async def hang_up(self) -> None:
        if self._takes_streams():
            await self._opened().hang_up()

    async def keep_alive(self) -> None:
        if not self._finished:
            if self._takes_streams():
                await self._opened().keep_alive()
            self.silent_since = time.monotonic()

    def abandon(self) -> None:
        """The call was ended from outside, and nobody may come back for the rest."""
        self._finished = True
        if self._stream is not None:
            self._stream.abandon()
            self._streams.forget(self._stream)

    async def finish(self, status: int, payload: bytes, *more: Header) -> None:
        self._finished = True
        if self._stream is None and (status != 200 or not self._likes_streams()):
            await self._outlet.answer(status, headers(self._correlation_id, *more), payload)
            return
        stream = self._opened()
        await stream.send(payload)
        await stream.end()
        self._streams.forget_later(stream)

    def _likes_streams(self) -> bool:
        """A client that names event streams first gets one even for a single answer, and so can resume it."""
        return self._accept.startswith(_EVENTS)

    def _takes_streams(self) -> bool:
        accept = self._accept
        return _EVENTS in accept or "*/*" in accept or "text/*" in accept

    async def _send(self, payload: bytes) -> None:
        if not self._finished:
            await self._opened().send(payload)
            self.silent_since = time.monotonic()

    def _opened(self) -> EventStream:
        if self._stream is None:
            self._stream = self._streams.new(self._client.session or "", self._correlation_id, self._principal)
            self._stream.adopt(self._outlet, prime=self._client.version >= _PRIMED_SINCE)
        return self._stream
