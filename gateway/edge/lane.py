"""The direct lane: a POST to an MCP endpoint goes from the parser to the door and back without ASGI, which costs as
much as the rest of the edge. Whatever is unusual about a request sends it the long way round.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl

from gateway.contract import Caller
from gateway.edge.door import Door
from gateway.edge.gone import Gone
from gateway.edge.headers import RawHeaders
from gateway.edge.tenure import Tenures

log = logging.getLogger("gatehouse.edge")

_STATUS_LINE: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}
_UNUSUAL: Final = frozenset({b"origin", b"expect", b"upgrade", b"content-encoding", b"transfer-encoding"})


class Lane:
    """Which requests may take it, and where it leads."""

    def __init__(self, door: Door, host_allowed: Callable[[bytes], bool]) -> None:
        self._door = door
        self._host_allowed = host_allowed

    def takes(self, url: bytes, headers: dict[bytes, bytes]) -> bool:
        """Only a plain path and a body of known length; browsers' requests need CORS, so they go round as well."""
        if url != b"/mcp" and (not url.startswith(b"/mcp/") or b"?" in url or b"%" in url):
            return False
        if b"content-length" not in headers or not _UNUSUAL.isdisjoint(headers):
            return False
        return self._host_allowed(headers[b"host"])

    async def run(self, exchange: "Exchange") -> None:
        try:
            await self._door.serve_direct(exchange)
        except asyncio.CancelledError:
            exchange.transport.close()
            raise
        except Exception:
            # The task of a request must not die unseen, nor its client wait.
            log.exception("a request failed at the edge")
            exchange.transport.close()


class _Nobody:
    """Stands where uvicorn expects an event that somebody may wait for."""

    def set(self) -> None: ...


_NOBODY: Final = _Nobody()


class Exchange:
    """One request and its answer, in place of uvicorn's cycle: what it reads and sets of one is here as well.

    It is a `gateway.contract.Outlet`.
    """

    __slots__ = (
        "_flow",
        "_gone",
        "_on_complete",
        "_stamps",
        "_tenure",
        "address",
        "body",
        "disconnected",
        "headers",
        "keep_alive",
        "more_body",
        "path",
        "response_complete",
        "response_started",
        "task",
        "transport",
    )

    message_event = _NOBODY
    waiting_for_100_continue = False

    def __init__(
        self,
        path: str,
        headers: RawHeaders,
        address: str,
        transport: asyncio.Transport,
        flow: FlowControl,
        gone: Gone,
        keep_alive: bool,
        stamps: Sequence[tuple[bytes, bytes]],
        on_complete: Callable[[], None],
    ) -> None:
        self.path = path
        self.headers = headers
        self.address = address
        self.transport = transport
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self._flow = flow
        self._gone = gone
        self._stamps = stamps
        self._on_complete = on_complete
        self._tenure: tuple[Caller, Tenures] | None = None
        self.task: asyncio.Task[None] | None = None

    def belongs(self, caller: Caller, tenures: Tenures) -> None:
        self._tenure = (caller, tenures)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        if self._flow.write_paused:
            await self._flow.drain()
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
            self._gone(lambda: tenures.closed(self))

    async def write(self, chunk: bytes) -> None:
        if self._flow.write_paused:
            await self._flow.drain()
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
        self._gone.lost()
        self._complete()
        if stop and self.task is not None and not self.task.cancelling():
            self.task.cancel()

    def on_gone(self, callback: Callable[[], None]) -> None:
        self._gone(callback)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        self.response_started = True
        head = [_STATUS_LINE[status]]
        head += [b"%b: %b\r\n" % each for each in self._stamps]
        head += [b"%b: %b\r\n" % each for each in headers]
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        return head

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self.transport.close()
        self._on_complete()
