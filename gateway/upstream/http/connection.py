"""A keep-alive HTTP/1.1 client connection on httptools, with one exchange at a time. Used by `ConnectionPool`.

The gateway has its own client because it takes a fifth of the time of the fastest library, and because it can tell
when the server certainly did not read a request.
"""

import asyncio
import select
from collections import deque
from typing import Final, cast

import httptools

from gateway.errors import Fault, Kind
from gateway.upstream.breaker import ConnectionFailed

MAX_BUFFERED_BYTES: Final = 256 * 1024
"""Maximum number of unread stream bytes; above it the connection stops reading."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""Maximum size of a head or trailer, which the parser buffers: bytes received without any body byte between them."""

_FRAMING_HEADERS: Final = ("content-length", "transfer-encoding")
"""They define where a body ends; without either, the body ends with the connection."""
_CHALLENGE_HEADERS: Final = ("www-authenticate", "dpop-nonce")
_READ_HEADERS: Final = (
    *("content-type", "content-encoding", "mcp-session-id", "retry-after"),
    *_CHALLENGE_HEADERS,
    *_FRAMING_HEADERS,
)
_HEADER_NAMES: Final = {name.encode(): name for name in _READ_HEADERS}
"""The response headers that are kept; all others are dropped."""
_NO_PROGRESS: Final = (0, 0)


class NoResponse(Exception):
    """The connection closed before the first byte of a response.

    Unless `maybe_read`, the server certainly did not read the request: it had closed the idle connection.
    """

    def __init__(self, *, maybe_read: bool) -> None:
        super().__init__()
        self.maybe_read = maybe_read


class UpstreamResponse:
    """A response: complete if `body` is set, else a stream to be read with `read`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes | None) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def read(self) -> bytes:
        """The next chunk of a stream; empty at its end. Raises `Fault` when the connection fails."""
        return b""

    def close(self) -> None:
        """Stop reading. Aborts the connection of a stream that has not ended."""


class ResponseStream(UpstreamResponse):
    """A response that is read chunk by chunk, with backpressure."""

    __slots__ = ("_buffered", "_chunks", "_connection", "_ended", "_error", "_waiter")

    def __init__(self, connection: "UpstreamConnection", status: int, headers: dict[str, str]) -> None:
        super().__init__(status, headers, None)
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Fault | None = None
        self._ended = False

    async def read(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._buffered < MAX_BUFFERED_BYTES // 2:
            self._connection.resume()
        return chunk

    def close(self) -> None:
        if self._ended:
            self._connection.resume()  # unread chunks may have paused it; they are dropped
        else:
            self._connection.abort()

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._buffered += len(chunk)
        if self._buffered > MAX_BUFFERED_BYTES:
            self._connection.pause()
        self._wake()

    def end(self, error: Fault | None = None) -> None:
        self._ended, self._error = error is None, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class UpstreamConnection(asyncio.Protocol):
    """One connection: `send` and the state for the pool, plus the callbacks of the transport and the parser."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._future: asyncio.Future[UpstreamResponse] | None = None
        self._stream: ResponseStream | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._bodyless = _NO_PROGRESS
        """Body size at the last check, and the bytes received since then that were not body."""
        self._head_complete = False
        self._has_received = False
        self._poller = select.poll()
        self.is_reusable = True
        self.idle_since = 0.0
        self.uses = 0

    # ---- API for the pool ----

    def send(self, request: bytes) -> "asyncio.Future[UpstreamResponse]":
        """Send a request. The future resolves to the response, or at the head of a stream.

        A caller that stops waiting must `abort`. Raises `NoResponse`, or sets it on the future, if the connection
        closes before the first response byte; `Fault(UNAVAILABLE)` if it fails later.
        """
        if self._transport is None or self._transport.is_closing():
            raise NoResponse(maybe_read=False)
        self._has_received = False
        self._bodyless = _NO_PROGRESS
        self._future = future = self._loop.create_future()
        self._transport.write(request)
        return future

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """Whether the idle socket is readable: usually the server closed it, and asyncio has not noticed yet."""
        return bool(self._poller.poll(0))

    def abort(self) -> None:
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    # ---- callbacks of the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._poller.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._future is None and self._stream is None:
            self.abort()  # unsolicited data
            return
        self._has_received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(Fault(Kind.UNAVAILABLE, f"{self._name} sent an invalid HTTP response."))
            self.abort()
        if self._future is not None or self._stream is not None:
            self._check_progress(len(data))

    def _check_progress(self, count: int) -> None:
        """Fail a response that is incomplete and grows without body bytes beyond `MAX_HEAD_BYTES`."""
        size, bodyless = self._bodyless
        self._bodyless = size, bodyless = (self._size, bodyless + count if size == self._size else 0)
        if bodyless > MAX_HEAD_BYTES:
            details = {"max_bytes": MAX_HEAD_BYTES}
            self._fail(
                Fault(Kind.TOO_LARGE, f"The head of {self._name}'s response exceeds the limit.", details=details)
            )
            self.abort()

    def eof_received(self) -> None:
        """The end of the connection ends a response without framing headers."""
        if self._has_received and self._head_complete and not any(name in self._headers for name in _FRAMING_HEADERS):
            self.on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        if not self._has_received and self._future is not None and not self._future.done():
            # A broken pipe means that nothing was written.
            self._future.set_exception(NoResponse(maybe_read=not isinstance(exc, BrokenPipeError)))
            return
        self._fail(ConnectionFailed(f"{self._name} closed the connection before its response was complete."))

    # ---- callbacks of the parser ----

    def on_message_begin(self) -> None:
        if self._future is None:
            self.is_reusable = False  # unsolicited response
        self._head_complete = False
        self._headers = {}
        self._body = []
        self._size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if (known := _HEADER_NAMES.get(name.lower())) is not None:
            self._headers[known] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        headers, self._head_complete = self._headers, True
        if headers.get("content-encoding", "identity") != "identity":
            self._fail(Fault(Kind.UNAVAILABLE, f"{self._name} sent a compressed response, which is not supported."))
            self.abort()
        elif headers.get("content-type", "").startswith("text/event-stream"):
            self._stream = ResponseStream(self, status, headers)
            self._resolve(self._stream)

    def on_body(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._stream is not None:
            self._stream.feed(chunk)
        elif self._size > self._max_bytes:
            details = {"max_bytes": self._max_bytes}
            self._fail(Fault(Kind.TOO_LARGE, f"{self._name}'s response exceeds the limit.", details=details))
            self.abort()
        else:
            self._body.append(chunk)

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), self._body
        if status < 200:
            return  # interim response
        self.is_reusable = self.is_reusable and self._parser.should_keep_alive()
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        else:
            self._resolve(UpstreamResponse(status, self._headers, body[0] if len(body) == 1 else b"".join(body)))

    def _resolve(self, response: UpstreamResponse) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(response)

    def _fail(self, fault: Fault) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_exception(fault)
        if self._stream is not None:
            self._stream.end(fault)
            self._stream = None
