"""The direct lane: what is asked of an MCP endpoint goes from the parser to the door and back without ASGI, which costs
a call as much as the rest of the edge, and an open stream as much memory. Whatever is unusual about a request sends it
the long way round.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from gateway.contract import Caller
from gateway.edge.disconnect import DisconnectSignal
from gateway.edge.error_response import last_words
from gateway.edge.mcp_endpoint import McpEndpoint
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.edge")

_STATUS_LINE: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}
_DIGITS: Final = 5
"""A body of up to 100 kB: so much of a stranger's is kept until it is known who they are."""
_UNUSUAL: Final = frozenset({"origin", "expect", "upgrade", "content-encoding", "transfer-encoding"})
_CUT_OFF: Final = Fault(Kind.UNAVAILABLE, "The request was cut off. Try again.", retry_after=1.0)
_FAILED: Final = Fault(Kind.INTERNAL, "The request could not be served.")


class FastPath:
    """Which requests may take it, and where it leads."""

    def __init__(self, door: McpEndpoint, host_allowed: Callable[[bytes], bool]) -> None:
        self._door = door
        self._host_allowed = host_allowed

    def takes(self, verb: bytes, url: bytes, headers: dict[str, str]) -> bool:
        """Only a plain path, and a POST of known length or a GET without a body; browsers' requests need CORS, so they
        go round as well. So does what is large: the long way asks whose it is before it keeps a byte."""
        if url != b"/mcp" and (not url.startswith(b"/mcp/") or b"?" in url or b"%" in url):
            return False
        digits = len(headers.get("content-length", ""))
        if not (0 < digits <= _DIGITS if verb == b"POST" else verb == b"GET" and not digits):
            return False
        if not _UNUSUAL.isdisjoint(headers):
            return False
        return self._host_allowed(headers["host"].encode("latin-1"))

    async def run(self, exchange: "FastPathExchange") -> None:
        try:
            await self._door.serve_direct(exchange)
        except asyncio.CancelledError:
            exchange.fail(503, _CUT_OFF)
            raise
        except Exception:
            # The task of a request must not die unseen, nor its client wait.
            log.exception("a request failed at the edge")
            exchange.fail(500, _FAILED)
        finally:
            exchange.line.leave(exchange)


class _Nobody:
    """Stands where uvicorn expects an event that somebody may wait for."""

    def set(self) -> None: ...


_NOBODY: Final = _Nobody()


class ConnectionControl(Protocol):
    """The connection that an exchange is on."""

    transport: asyncio.Transport
    flow: FlowControl
    client: tuple[str, int] | None

    @property
    def stamps(self) -> Sequence[tuple[bytes, bytes]]:
        """What every answer says."""
        ...

    def on_response_complete(self) -> None: ...

    def leave(self, exchange: "FastPathExchange") -> None: ...


class FastPathExchange(DisconnectSignal):
    """One request and its answer, in place of uvicorn's cycle: what it reads and sets of one is here as well.

    It is a `gateway.contract.Outlet`.
    """

    message_event = _NOBODY
    waiting_for_100_continue = False
    # The class's own until they change, as with `Gone`.
    more_body = True
    disconnected = False
    response_started = False
    response_complete = False
    task: "asyncio.Task[None] | None" = None
    body: bytes | bytearray = b""
    _tenure: tuple[Caller, StreamExpiry] | None = None

    def __init__(
        self,
        line: ConnectionControl,
        verb: str,
        path: str,
        headers: dict[str, str],
        duplicate: str | None,
        keep_alive: bool,
    ) -> None:
        self.line = line
        self.transport = line.transport
        self.verb = verb
        self.path = path
        self.headers = headers
        self.duplicate = duplicate
        self.keep_alive = keep_alive

    @property
    def peer(self) -> tuple[str, int] | None:
        return self.line.client

    def take(self, body: bytes) -> None:
        """One more piece of the body; mostly it is the only one."""
        if not self.body:
            self.body = body
        elif isinstance(self.body, bytearray):
            self.body += body
        else:
            self.body = bytearray(self.body) + body

    def belongs(self, caller: Caller, tenures: StreamExpiry) -> None:
        self._tenure = (caller, tenures)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        if self.line.flow.write_paused:
            await self.line.flow.drain()
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
        if self._tenure is not None:
            caller, tenures = self._tenure
            tenures.opened(caller, self)
            self(lambda: tenures.closed(self))

    async def write(self, chunk: bytes) -> None:
        if self.line.flow.write_paused:
            await self.line.flow.drain()
        if chunk and not self.disconnected and not self.response_complete:
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    async def close(self) -> None:
        if not self.disconnected and not self.response_complete:
            self.transport.write(b"0\r\n\r\n")
            if self._tenure is not None:
                self._tenure[1].closed(self)
            self._complete()

    def cut(self, *, stop: bool) -> None:
        if self.disconnected or self.response_complete:
            return
        self.transport.write(b"0\r\n\r\n")
        self.lost()
        self._complete()
        if stop and self.task is not None and not self.task.cancelling():
            self.task.cancel()

    def on_gone(self, callback: Callable[[], None]) -> None:
        self(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def fail(self, status: int, fault: Fault) -> None:
        """It will not be answered; once it is, the connection may be another's."""
        if self.response_complete or self.disconnected:
            return
        if not self.response_started:
            self.transport.write(last_words(status, fault))
        self.transport.close()

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        self.response_started = True
        head = [_STATUS_LINE[status]]
        head += [b"%b: %b\r\n" % each for each in self.line.stamps]
        head += [b"%b: %b\r\n" % each for each in headers]
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        return head

    def _complete(self) -> None:
        self.response_complete = True
        self.body = b""  # the connection keeps its last request until the next
        if not self.keep_alive:
            self.transport.close()
        self.line.on_response_complete()
