"""The way back to a client of the handshake era: a stream that it may leave and resume, and that can ask."""

import time
from collections.abc import Mapping
from typing import Final

from gateway.contract import ClientProfile, Json, ResponseWriter
from gateway.errors import Fault, Kind
from gateway.protocol.answer import Header, headers, notification_bytes
from gateway.protocol.asking import Asking
from gateway.protocol.params import loud_enough
from gateway.protocol.streams import Stream, Streams

_PRIMED_SINCE: Final = "2025-11-25"
_EVENTS: Final = "text/event-stream"


class LegacyWire:
    """JSON at the end, unless something had to be said before, or the client likes streams better: then a stream.

    A client that accepts no streams is told nothing before the end, and cannot be asked.
    """

    _stream: Stream | None = None
    _finished = False
    _waited = 0.0
    _asked_at: float | None = None

    def __init__(
        self,
        outlet: ResponseWriter,
        client: ClientProfile,
        correlation_id: str,
        streams: Streams,
        asking: Asking,
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

    def _opened(self) -> Stream:
        if self._stream is None:
            self._stream = self._streams.new(self._client.session or "", self._correlation_id, self._principal)
            self._stream.adopt(self._outlet, prime=self._client.version >= _PRIMED_SINCE)
        return self._stream
