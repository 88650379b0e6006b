"""One keep-alive HTTP/1.1 connection to a server, one exchange at a time, on httptools.

Our own client: on the hot path it takes a fifth of the time of the fastest library, and it can tell when a request
was certainly not read.
"""

import asyncio
import select
from collections import deque
from typing import Final, cast

import httptools

from gateway.errors import Fault, Kind

READ_AHEAD: Final = 256 * 1024
"""Bytes of a stream that may wait unread before the server is made to wait."""

HEAD_BYTES: Final = 64 * 1024
"""Of heads and trailers that may come without a byte of a body between them: the parser joins their pieces."""

_FRAMES: Final = ("content-length", "transfer-encoding")
"""One of them tells where a body ends; where both are missing, it ends with the connection."""
_LOOKED_AT: Final = ("content-type", "content-encoding", "mcp-session-id", "retry-after", *_FRAMES)
_READ: Final = {name.encode(): name for name in _LOOKED_AT}
"""The headers that anybody looks at."""
_NOTHING_YET: Final = (0, 0)


class RequestNotRead(Exception):
    """The connection went away before one byte of an answer came.

    Unless `sent`, the server certainly never saw the request: it had closed the connection while it stood idle.
    """

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class UpstreamResponse:
    """An answer: whole when `body` is set, else a stream to be read by `chunk`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def chunk(self) -> bytes:
        """The next piece of a stream; empty at its end. Raises `Fault` when it broke off."""
        return b""

    def close(self) -> None:
        """Read no further. A stream that is not over takes its connection with it."""


class ResponseStream(UpstreamResponse):
    """One that is read piece by piece."""

    __slots__ = ("_chunks", "_connection", "_error", "_over", "_pending", "_waiter")

    def __init__(self, connection: "UpstreamConnection", status: int, headers: dict[str, str]) -> None:
        super().__init__(status, headers, None)
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._pending = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Fault | None = None
        self._over = False

    async def chunk(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._over:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._chunks.popleft()
        self._pending -= len(piece)
        if self._pending < READ_AHEAD // 2:
            self._connection.resume()
        return piece

    def close(self) -> None:
        if self._over:
            self._connection.resume()  # what is unread may have made the server wait, and is not ours to read any more
        else:
            self._connection.abort()

    def feed(self, piece: bytes) -> None:
        self._chunks.append(piece)
        self._pending += len(piece)
        if self._pending > READ_AHEAD:
            self._connection.pause()
        self._wake()

    def end(self, error: Fault | None = None) -> None:
        self._over, self._error = error is None, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class UpstreamConnection(asyncio.Protocol):
    """Callbacks of the transport and of the parser; `ask` is what the pool calls."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[UpstreamResponse] | None = None
        self._stream: ResponseStream | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._barren = _NOTHING_YET
        """How much of the body had come at the last look, and how many bytes came since that were none of it."""
        self._headed = False
        self._touched = False
        self._quiet = select.poll()
        self.reusable = True
        self.idle_since = 0.0
        self.uses = 0

    # ---- for the pool ----

    def ask(self, request: bytes) -> "asyncio.Future[UpstreamResponse]":
        """Send a request; the answer, or the head of one that streams. Whoever gives up waiting has to `abort`.

        Raises `Unread` when the server had closed the connection, `Fault(UNAVAILABLE)` when it broke off later.
        """
        if self._transport is None or self._transport.is_closing():
            raise RequestNotRead(sent=False)
        self._touched = False
        self._barren = _NOTHING_YET
        self._answer = answer = self._loop.create_future()
        self._transport.write(request)
        return answer

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def stale(self) -> bool:
        """Whether something came while nobody asked: the end of the connection, as a rule, not yet told to us."""
        return bool(self._quiet.poll(0))

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    # ---- from the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._quiet.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._answer is None and self._stream is None:
            self.abort()  # nobody asked
            return
        self._touched = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(Fault(Kind.UNAVAILABLE, f"{self._name} did not answer in HTTP."))
            self.abort()
        if self._answer is not None or self._stream is not None:
            self._more_to_come(len(data))

    def _more_to_come(self, count: int) -> None:
        """An answer that is not over with the bytes that came: it may not go on for ever without a body."""
        size, barren = self._barren
        self._barren = size, barren = (self._size, barren + count if size == self._size else 0)
        if barren > HEAD_BYTES:
            details = {"max_bytes": HEAD_BYTES}
            self._fail(Fault(Kind.TOO_LARGE, f"The head of {self._name}'s answer exceeds the limit.", details=details))
            self.abort()

    def eof_received(self) -> None:
        """The end of the connection is also the end of an answer that says no other."""
        if self._touched and self._headed and not any(name in self._headers for name in _FRAMES):
            self.on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if not self._touched and self._answer is not None and not self._answer.done():
            # A broken pipe is how the system says that nothing could be written.
            self._answer.set_exception(RequestNotRead(sent=not isinstance(exc, BrokenPipeError)))
            return
        self._fail(Fault(Kind.UNAVAILABLE, f"{self._name} closed the connection before its answer was complete."))

    # ---- from the parser ----

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.reusable = False  # nobody asked
        self._headed = False
        self._headers = {}
        self._body = []
        self._size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if (known := _READ.get(name.lower())) is not None:
            self._headers[known] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        headers, self._headed = self._headers, True
        if headers.get("content-encoding", "identity") != "identity":
            self._fail(Fault(Kind.UNAVAILABLE, f"{self._name} compressed its answer though it was asked not to."))
            self.abort()
        elif headers.get("content-type", "").startswith("text/event-stream"):
            self._stream = ResponseStream(self, status, headers)
            self._settle(self._stream)

    def on_body(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._stream is not None:
            self._stream.feed(piece)
        elif self._size > self._max_bytes:
            details = {"max_bytes": self._max_bytes}
            self._fail(Fault(Kind.TOO_LARGE, f"{self._name}'s answer exceeds the limit.", details=details))
            self.abort()
        else:
            self._body.append(piece)

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), self._body
        if status < 200:
            return  # more is to come
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        else:
            self._settle(UpstreamResponse(status, self._headers, body[0] if len(body) == 1 else b"".join(body)))

    def _settle(self, response: UpstreamResponse) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(response)

    def _fail(self, fault: Fault) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)
        if self._stream is not None:
            self._stream.end(fault)
            self._stream = None
