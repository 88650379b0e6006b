"""Implements `Wire` for both eras: notifications, requests to the client, and the final response of one call.

`KeepAlive` writes comments to idle responses. `ModernEra`, `LegacyEra` and `GetStreams` use this module.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from gateway.contract import ClientProfile, Json, ResponseWriter
from gateway.errors import Fault, Kind
from gateway.protocol.client_requests import ClientRequests
from gateway.protocol.event_streams import EventStream, EventStreams
from gateway.protocol.messages import is_level_enabled
from gateway.protocol.responses import Header, json_headers, notification_bytes, stream_headers, with_request_id
from gateway.sse import KEEP_ALIVE_COMMENT, event

KEEP_ALIVE_SECONDS: Final = 15.0
_PRIMING_SINCE: Final = "2025-11-25"
"""The first revision whose clients accept an event without data."""
_EVENT_STREAM: Final = "text/event-stream"


class KeepAliveStream(Protocol):
    """A response in progress that `KeepAlive` watches."""

    idle_since: float

    async def keep_alive(self) -> None: ...


class KeepAlive:
    """Sends a keep-alive comment on every response that has been idle for `interval` seconds; one timer for all."""

    def __init__(self, interval: float = KEEP_ALIVE_SECONDS) -> None:
        self._interval = interval
        self._streams: set[KeepAliveStream] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, stream: KeepAliveStream) -> None:
        self._streams.add(stream)

    def discard(self, stream: KeepAliveStream) -> None:
        self._streams.discard(stream)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval / 3)
            due = time.monotonic() - self._interval
            for stream in [each for each in self._streams if each.idle_since < due]:
                task = asyncio.create_task(stream.keep_alive())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


class ModernWire:
    """The wire of a modern call: the response is JSON, or an event stream if anything is sent before it.

    A call that asks the client is parked: the current response ends with the input requests, and the response to the
    client's next request replaces it.
    """

    # Attributes that most calls never set stay class attributes, which makes an instance cheaper.
    _stream_lock: asyncio.Lock | None = None
    _finished = False
    _answered: asyncio.Event | None = None
    _task: "asyncio.Task[Any] | None" = None
    _waited = 0.0
    _asked_at: float | None = None
    _deferred_response: "tuple[int, bytes, tuple[Header, ...], str | int | None] | None" = None
    is_disconnected = False

    def __init__(
        self,
        writer: ResponseWriter,
        client: ClientProfile,
        correlation_id: str,
        request_id: str | int | None = None,
        park: "Callable[[ModernWire, Mapping[str, Json]], Awaitable[dict[str, Json]]] | None" = None,
    ) -> None:
        """`park` ends the response with the input requests and returns the client's answers."""
        self._writer = writer
        self._client = client
        self._correlation_id = correlation_id
        self._park = park
        self.request_id = request_id
        self.idle_since = time.monotonic()
        writer.on_disconnect(self._on_disconnect)

    @property
    def waited(self) -> float:
        return self._waited if self._asked_at is None else self._waited + time.monotonic() - self._asked_at

    def _on_disconnect(self) -> None:
        self.is_disconnected = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._writer.cancel()

    async def notify(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            # In this era each request has to opt in to log messages.
            min_level = self._client.log_level
            if min_level is None or not is_level_enabled(params.get("level"), min_level):
                return
        await self.write(event(notification_bytes(method, params)))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        if self._park is None:
            raise Fault(Kind.UNSUPPORTED, "This client cannot be asked for input.")
        self._asked_at = time.monotonic()
        self._task = asyncio.current_task()
        try:
            return await self._park(self, requests)
        finally:
            self._waited += time.monotonic() - self._asked_at
            self._asked_at = None

    @contextmanager
    def pause(self) -> Generator[None]:
        self._asked_at = started = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - started
            self._asked_at = None

    async def end_response(self) -> None:
        """Do nothing: streams of this era cannot be resumed."""

    async def keep_alive(self) -> None:
        await self.write(KEEP_ALIVE_COMMENT)

    async def write(self, chunk: bytes) -> None:
        """Write a chunk of the event stream in order, and open the stream first; dropped while the call is parked."""
        if self._finished:
            return
        if self._stream_lock is None:
            self._stream_lock = asyncio.Lock()
            async with self._stream_lock:
                await self._writer.open(stream_headers(self._correlation_id))
                await self._writer.write(chunk)
        else:
            async with self._stream_lock:
                await self._writer.write(chunk)
        self.idle_since = time.monotonic()

    async def finish(self, status: int, payload: bytes, *extra_headers: Header) -> None:
        """Send the final response, as JSON or as the last event of the stream."""
        if self._finished:
            # The call ended while it was parked. The client gets this response with its next request.
            self._deferred_response = (status, payload, extra_headers, self.request_id)
            return
        self._finished = True
        if self._stream_lock is None:
            await self._writer.send(status, json_headers(self._correlation_id, *extra_headers), payload)
        else:
            async with self._stream_lock:
                await self._writer.write(event(payload))
                await self._writer.close()
        self.release_waiters()

    async def send_deferred(self) -> None:
        """Send the response of a call that ended while it was parked."""
        if self._deferred_response is not None:
            (status, payload, extra_headers, old_id), self._deferred_response = self._deferred_response, None
            await self.finish(status, with_request_id(payload, old_id, self.request_id), *extra_headers)

    def release_waiters(self) -> None:
        """Set the event that `resume` returned: the response is complete or will not come."""
        if self._answered is not None:
            self._answered.set()

    def resume(self, writer: ResponseWriter, request_id: str | int | None) -> asyncio.Event:
        """Respond to this request from now on; the returned event is set when the response is complete.

        Raises `Fault(ILLEGAL_STATE)` while the response to another request is open.
        """
        if not self._finished:
            raise Fault(Kind.ILLEGAL_STATE, "Another request is already resuming this call.")
        self._writer, self.request_id = writer, request_id
        self._stream_lock, self._finished, self.is_disconnected = None, False, False
        self._answered = asyncio.Event()
        self.idle_since = time.monotonic()
        writer.on_disconnect(self._on_disconnect)
        return self._answered


class LegacyWire:
    """The wire of a handshake-era call: the response is JSON or a resumable event stream.

    It is a stream if anything is sent before the response, or if the client prefers streams. A client that does not
    accept streams gets only the response, and cannot be asked for input.
    """

    _stream: EventStream | None = None
    _finished = False
    _waited = 0.0
    _asked_at: float | None = None

    def __init__(
        self,
        writer: ResponseWriter,
        client: ClientProfile,
        correlation_id: str,
        streams: EventStreams,
        client_requests: ClientRequests,
        accept: str = "*/*",
        principal: str = "",
    ) -> None:
        """`accept` is the client's Accept header; `principal` owns the event stream if one is created."""
        self._accept = accept
        self._principal = principal
        self._writer = writer
        self._client = client
        self._correlation_id = correlation_id
        self._streams = streams
        self._client_requests = client_requests
        self.idle_since = time.monotonic()

    @property
    def waited(self) -> float:
        return self._waited if self._asked_at is None else self._waited + time.monotonic() - self._asked_at

    async def notify(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            min_level = self._client.log_level
            if min_level is not None and not is_level_enabled(params.get("level"), min_level):
                return
        if self._accepts_stream():
            await self._send(notification_bytes(method, params))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        if not self._accepts_stream():
            raise Fault(Kind.UNSUPPORTED, "The client cannot be asked for input: it does not accept text/event-stream.")
        self._asked_at = time.monotonic()
        try:
            session, capabilities = self._client.session or "", self._client.capabilities
            return await self._client_requests.ask(session, capabilities, requests, self._send)
        finally:
            self._waited += time.monotonic() - self._asked_at
            self._asked_at = None

    @contextmanager
    def pause(self) -> Generator[None]:
        self._asked_at = started = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - started
            self._asked_at = None

    async def end_response(self) -> None:
        if self._accepts_stream():
            await self._open_stream().detach()

    async def keep_alive(self) -> None:
        if not self._finished:
            if self._accepts_stream():
                await self._open_stream().keep_alive()
            self.idle_since = time.monotonic()

    def abandon(self) -> None:
        """Drop the stream of a call that was cancelled by the gateway; it cannot be resumed."""
        self._finished = True
        if self._stream is not None:
            self._stream.abandon()
            self._streams.remove(self._stream)

    async def finish(self, status: int, payload: bytes, *extra_headers: Header) -> None:
        """Send the final response, as JSON or as the last event of the stream."""
        self._finished = True
        if self._stream is None and (status != 200 or not self._prefers_stream()):
            await self._writer.send(status, json_headers(self._correlation_id, *extra_headers), payload)
            return
        stream = self._open_stream()
        await stream.send(payload)
        await stream.end()
        self._streams.schedule_removal(stream)

    def _prefers_stream(self) -> bool:
        """A client that lists event streams first always gets one, so that it can resume the response."""
        return self._accept.startswith(_EVENT_STREAM)

    def _accepts_stream(self) -> bool:
        accept = self._accept
        return _EVENT_STREAM in accept or "*/*" in accept or "text/*" in accept

    async def _send(self, payload: bytes) -> None:
        if not self._finished:
            await self._open_stream().send(payload)
            self.idle_since = time.monotonic()

    def _open_stream(self) -> EventStream:
        if self._stream is None:
            self._stream = self._streams.create(self._client.session or "", self._correlation_id, self._principal)
            self._stream.attach_lazily(self._writer, prime=self._client.version >= _PRIMING_SINCE)
        return self._stream
