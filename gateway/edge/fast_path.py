"""The fast path: MCP requests go from the HTTP parser to `McpEndpoint` without ASGI.

ASGI would double the CPU cost of the edge per call and the memory per open stream. Unusual requests take the ASGI path.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from gateway.contract import Caller
from gateway.edge.error_response import closing_response
from gateway.edge.mcp_endpoint import DisconnectSignal, McpEndpoint
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.edge")

_STATUS_LINE: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}
_MAX_LENGTH_DIGITS: Final = 5
"""Maximum digits of Content-Length: bodies up to 100 kB are buffered before authentication."""
_SLOW_PATH_HEADERS: Final = frozenset({"origin", "expect", "upgrade", "content-encoding", "transfer-encoding"})
_CANCELLED: Final = Fault(Kind.UNAVAILABLE, "The request was interrupted. Retry it.", retry_after=1.0)
_FAILED: Final = Fault(Kind.INTERNAL, "The request failed unexpectedly.")


class FastPath:
    """Decides which requests take the fast path, and serves them."""

    def __init__(self, endpoint: McpEndpoint, host_allowed: Callable[[bytes], bool]) -> None:
        self._endpoint = endpoint
        self._host_allowed = host_allowed

    def accepts(self, verb: bytes, url: bytes, headers: dict[str, str]) -> bool:
        """Accept a plain path with a POST of known, small length or a GET without body.

        Browser requests need CORS and large bodies must be authenticated before they are read: both take the ASGI path.
        """
        if url != b"/mcp" and (not url.startswith(b"/mcp/") or b"?" in url or b"%" in url):
            return False
        digits = len(headers.get("content-length", ""))
        if not (0 < digits <= _MAX_LENGTH_DIGITS if verb == b"POST" else verb == b"GET" and not digits):
            return False
        if not _SLOW_PATH_HEADERS.isdisjoint(headers):
            return False
        return self._host_allowed(headers["host"].encode("latin-1"))

    async def run(self, exchange: "FastPathExchange") -> None:
        try:
            await self._endpoint.serve_fast_path(exchange)
        except asyncio.CancelledError:
            exchange.fail(503, _CANCELLED)
            raise
        except Exception:
            # The client must get a response, whatever failed.
            log.exception("edge: unexpected exception while serving an MCP request; responding with 500")
            exchange.fail(500, _FAILED)
        finally:
            exchange.connection.finish_exchange(exchange)


class _NoEvent:
    """Placeholder for the event that uvicorn sets on its request cycle."""

    def set(self) -> None: ...


_NO_EVENT: Final = _NoEvent()


class ConnectionControl(Protocol):
    """The connection of an exchange."""

    transport: asyncio.Transport
    flow: FlowControl
    client: tuple[str, int] | None

    @property
    def default_headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Headers of every response."""
        ...

    def on_response_complete(self) -> None: ...

    def finish_exchange(self, exchange: "FastPathExchange") -> None: ...


class FastPathExchange(DisconnectSignal):
    """One request and its response, in place of uvicorn's request cycle, whose attributes it has.

    Implements `gateway.contract.ResponseWriter`.
    """

    message_event = _NO_EVENT
    waiting_for_100_continue = False
    # Class attributes until they change, as in `DisconnectSignal`.
    more_body = True
    disconnected = False
    response_started = False
    response_complete = False
    task: "asyncio.Task[None] | None" = None
    body: bytes | bytearray = b""
    _expiry: tuple[Caller, StreamExpiry] | None = None

    def __init__(
        self,
        connection: ConnectionControl,
        method: str,
        path: str,
        headers: dict[str, str],
        duplicate_header: str | None,
        keep_alive: bool,
    ) -> None:
        self.connection = connection
        self.transport = connection.transport
        self.peer = connection.client
        self.method = method
        self.path = path
        self.headers = headers
        self.duplicate_header = duplicate_header
        self.keep_alive = keep_alive

    def append_body(self, body: bytes) -> None:
        """Append a piece of the body; usually it is the only one."""
        if not self.body:
            self.body = body
        elif isinstance(self.body, bytearray):
            self.body += body
        else:
            self.body = bytearray(self.body) + body

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        self._expiry = (caller, stream_expiry)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        if self.connection.flow.write_paused:
            await self.connection.flow.drain()
        if self.disconnected or self.response_started:
            return
        head = self._head(status, headers)
        if status != 204:
            head.append(b"content-length: %d\r\n" % len(body))
        head.append(b"\r\n")
        head.append(body)
        self.transport.write(b"".join(head))
        self._complete()

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if self.disconnected or self.response_started:
            return
        head = self._head(200, headers)
        head.append(b"transfer-encoding: chunked\r\n\r\n")
        self.transport.write(b"".join(head))
        if self._expiry is not None:
            caller, stream_expiry = self._expiry
            stream_expiry.add(caller, self)
            self(lambda: stream_expiry.remove(self))

    async def write(self, chunk: bytes) -> None:
        if self.connection.flow.write_paused:
            await self.connection.flow.drain()
        if chunk and not self.disconnected and not self.response_complete:
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    async def close(self) -> None:
        if not self.disconnected and not self.response_complete:
            self.transport.write(b"0\r\n\r\n")
            if self._expiry is not None:
                self._expiry[1].remove(self)
            self._complete()

    def end(self, *, stop: bool) -> None:
        if self.disconnected or self.response_complete:
            return
        self.transport.write(b"0\r\n\r\n")
        self.disconnect()
        self._complete()
        if stop and self.task is not None and not self.task.cancelling():
            self.task.cancel()

    on_disconnect = DisconnectSignal.__call__

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def fail(self, status: int, fault: Fault) -> None:
        """Send an error response and close, unless the response is complete: the connection may be in use again."""
        if self.response_complete or self.disconnected:
            return
        if not self.response_started:
            self.transport.write(closing_response(status, fault))
        self.transport.close()

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        self.response_started = True
        head = [_STATUS_LINE[status]]
        head += [b"%b: %b\r\n" % each for each in self.connection.default_headers]
        head += [b"%b: %b\r\n" % each for each in headers]
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        return head

    def _complete(self) -> None:
        self.response_complete = True
        self.body = b""  # the connection keeps a reference to its last request
        if not self.keep_alive:
            self.transport.close()
        self.connection.on_response_complete()
