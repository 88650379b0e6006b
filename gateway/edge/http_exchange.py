"""One HTTP request and its response on a connection of `gateway.edge.http_protocol`.

`HttpExchange` is what the MCP endpoint reads and writes directly, and what `gateway.edge.asgi` presents to ASGI apps.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from gateway.contract import Caller
from gateway.edge.error_response import closing_response
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.edge")

RawHeaders = list[tuple[bytes, bytes]]

_STATUS_LINE: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}
_MAX_BUFFERED_BODY: Final = 64 * 1024
"""Reading from the client pauses while this much of a body has not been consumed."""
_CANCELLED: Final = Fault(Kind.UNAVAILABLE, "The request was interrupted. Retry it.", retry_after=1.0)
_FAILED: Final = Fault(Kind.INTERNAL, "The request failed unexpectedly.")
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class DisconnectSignal:
    """`on_disconnect(callback)` calls back at most once: on disconnect, or immediately if that has happened.

    Callbacks are dropped once the response is complete.
    """

    # Class attributes until they change: most requests complete without a callback.
    _callbacks: tuple[Callable[[], None], ...] = ()
    response_complete = False
    disconnected = False

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self.disconnected:
            callback()
        elif not self.response_complete:
            self._callbacks += (callback,)

    def complete(self) -> None:
        """The response is complete: drop the callbacks."""
        self.response_complete = True
        self._callbacks = ()

    def disconnect(self) -> None:
        """The client disconnected. No effect after `complete`."""
        if self.response_complete or self.disconnected:
            return
        self.disconnected = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback()


class ExchangeConnection(Protocol):
    """The connection of an exchange."""

    transport: asyncio.Transport
    flow: FlowControl
    client: tuple[str, int] | None

    server_state: ServerState
    """Its `default_headers` are part of every response."""

    def exchange_complete(self, exchange: "HttpExchange") -> None:
        """The response is complete: the next request of the connection may be served."""
        ...

    def exchange_finished(self, exchange: "HttpExchange") -> None:
        """The task that served the request has ended."""
        ...


class HttpExchange(DisconnectSignal):
    """A request and the writer of its response. Implements `gateway.contract.ResponseWriter`."""

    # Class attributes until they change, as in `DisconnectSignal`: a response needs few of them.
    body: bytes | bytearray = b""
    body_received = False
    body_consumed = False
    awaits_continue = False
    """The client waits for `100 Continue` before it sends the body."""
    response_started = False
    cors_headers: Sequence[tuple[bytes, bytes]] = ()
    task: "asyncio.Task[None] | None" = None
    _chunked = True
    _body_allowed = True
    _expiry: tuple[Caller, StreamExpiry] | None = None
    _changed: asyncio.Event | None = None
    """Set when a piece of the body arrives or the exchange ends; created by the first `receive` that waits."""

    def __init__(
        self,
        connection: ExchangeConnection,
        method: str,
        target: bytes,
        version: str,
        headers: dict[str, str],
        raw_headers: RawHeaders,
        duplicate_header: str | None,
        keep_alive: bool,
    ) -> None:
        self.connection = connection
        self.transport = connection.transport
        self.peer = connection.client
        self.method = method
        self.target = target
        self.path = target.decode("latin-1")
        """The path of an MCP endpoint; for all other targets, `target` is parsed."""
        self.version = version
        self.headers = headers
        self.raw_headers = raw_headers
        self.duplicate_header = duplicate_header
        self.keep_alive = keep_alive
        if version == "1.0":
            self._chunked = False
        if method == "HEAD":
            self._body_allowed = False

    # ---- request

    def append_body(self, piece: bytes) -> None:
        """Append a piece of the body; usually it is the only one."""
        if self.response_complete:
            return
        if not self.body:
            self.body = piece
        elif isinstance(self.body, bytearray):
            self.body += piece
        else:
            self.body = bytearray(self.body) + piece
        if self.task is not None and len(self.body) > _MAX_BUFFERED_BODY:
            self.connection.flow.pause_reading()
        self.wake()

    def wake(self) -> None:
        """Continue a waiting `receive`: a piece of the body arrived, or the exchange ended."""
        if self._changed is not None:
            self._changed.set()

    @property
    def received_body(self) -> bytes | None:
        """The body if it has arrived completely and needs no decoding, else None."""
        return bytes(self.body) if self.body_received and "content-encoding" not in self.headers else None

    async def receive(self) -> Message:
        """ASGI's `receive`: the next piece of the body, then the disconnect."""
        if self.awaits_continue:
            self.awaits_continue = False
            if not (self.body or self.body_received or self.transport.is_closing()):
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.disconnected or self.response_complete):
            if not self.body_consumed and (self.body or self.body_received):
                piece, self.body = bytes(self.body), b""
                self.body_consumed = self.body_received
                return {"type": "http.request", "body": piece, "more_body": not self.body_received}
            await self._wait()
        return _DISCONNECT

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        self.connection.flow.resume_reading()
        await self._changed.wait()

    # ---- response

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        self._expiry = (caller, stream_expiry)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        if self.connection.flow.write_paused:
            await self.connection.flow.drain()
        if self.disconnected or self.response_started:
            return
        head = self._head(status, headers, b"" if status == 204 else b"content-length: %d\r\n" % len(body))
        if self._body_allowed:
            head.append(body)
        self.transport.write(b"".join(head))
        self.complete()

    async def open(self, headers: Sequence[tuple[bytes, bytes]], status: int = 200) -> None:
        """Start a streamed response. Its headers may state a length; otherwise it is chunked."""
        if self.disconnected or self.response_started:
            return
        if status in (204, 304):
            self._body_allowed = False
        if any(name == b"content-length" for name, _ in headers):
            self._chunked = False
        elif not self._chunked:
            self.keep_alive = False  # the end of the connection is the end of the body
        is_chunked = self._chunked and self._body_allowed
        self.transport.write(b"".join(self._head(status, headers, _CHUNKED if is_chunked else b"")))
        if self._expiry is not None:
            caller, stream_expiry = self._expiry
            stream_expiry.add(caller, self)
            self.on_disconnect(lambda: stream_expiry.remove(self))

    async def write(self, chunk: bytes) -> None:
        if self.connection.flow.write_paused:
            await self.connection.flow.drain()
        if chunk and self._body_allowed and not self.disconnected and not self.response_complete:
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)

    async def close(self) -> None:
        if not self.disconnected and not self.response_complete:
            self._write_end()
            if self._expiry is not None:
                self._expiry[1].remove(self)
            self.complete()

    def end(self, *, stop: bool) -> None:
        if self.disconnected or self.response_complete:
            return
        self._write_end()
        self.disconnect()
        self.complete()
        if stop and self.task is not None and not self.task.cancelling():
            self.task.cancel()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def complete(self) -> None:
        super().complete()
        self.body = b""  # the connection keeps a reference to its last request
        self.wake()
        if not self.keep_alive:
            self.transport.close()
        self.connection.exchange_complete(self)

    def disconnect(self) -> None:
        super().disconnect()
        self.wake()

    def fail(self, status: int, fault: Fault) -> None:
        """Send an error response and close, unless the response is complete: the connection may be in use again."""
        if self.response_complete or self.disconnected:
            return
        if not self.response_started:
            self.transport.write(closing_response(status, fault))
        self.transport.close()

    async def run(self, serve: "Callable[[HttpExchange], Awaitable[None]]") -> None:
        """Serve the request; the body of its task. The client gets a response, whatever fails."""
        try:
            await serve(self)
        except asyncio.CancelledError:
            self.fail(503, _CANCELLED)
            raise
        except Exception:
            log.exception("edge: unexpected exception while serving a request; responding with 500")
            self.fail(500, _FAILED)
        finally:
            self.connection.exchange_finished(self)

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]], framing: bytes) -> list[bytes]:
        self.response_started = True
        head = [_STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status]
        head += [b"%b: %b\r\n" % each for each in self.connection.server_state.default_headers]
        if self.cors_headers:
            head += [b"%b: %b\r\n" % each for each in self.cors_headers]
        head += [b"%b: %b\r\n" % each for each in headers]
        head.append(framing)
        head.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return head

    def _write_end(self) -> None:
        if self._chunked and self._body_allowed:
            self.transport.write(b"0\r\n\r\n")
