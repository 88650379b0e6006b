"""From ASGI to one authenticated, fully read request, and back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.types import Message, Receive, Scope, Send

from gateway.contract import Caller, McpHttpRequest, ResponseWriter
from gateway.edge.authentication import Header, check_audience
from gateway.edge.disconnect import EXTENSION, DisconnectSignal
from gateway.edge.error_response import refusal
from gateway.edge.headers import fold, repeated_routing_header
from gateway.edge.request_limits import read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> who calls. Raises `Fault`."""

Known = Callable[[Mapping[str, str]], Caller | None]
"""Headers -> who calls, if that was found out not long ago; None: ask."""

Unauthenticated = Callable[[Fault, str], Header]
"""A fault and the path it was met at -> the challenge."""


class FastPathRequest(ResponseWriter, Protocol):
    """A request read whole, and where its answer goes."""

    verb: str
    path: str
    headers: dict[str, str]
    duplicate: str | None
    body: bytes | bytearray

    @property
    def peer(self) -> tuple[str, int] | None: ...

    def belongs(self, caller: Caller, tenures: StreamExpiry) -> None:
        """What is streamed to it ends with this caller's credential."""
        ...


class McpEndpoint:
    """The ASGI app of every MCP endpoint: no credential, no service."""

    def __init__(
        self,
        authenticate: Authenticate,
        serve: Callable[[McpHttpRequest, ResponseWriter], Awaitable[None]],
        max_body: int,
        challenge: Unauthenticated,
        tenures: StreamExpiry,
        admit: Authenticate | None = None,
        known: Known | None = None,
    ) -> None:
        """`admit` authenticates what no policy will see: requests other than POST; `authenticate` unless given.

        `known` saves asking, where it knows.
        """
        self._authenticate = authenticate
        self._known = known or _nobody
        self._admit = admit or authenticate
        self._serve = serve
        self._max_body = max_body
        self._challenge = challenge
        self._tenures = tenures

    def serve_direct(self, exchange: "FastPathRequest") -> Awaitable[None]:
        """The same for a request that did not come by ASGI. Not a coroutine of its own where nothing is waited for."""
        caller = self._known(exchange.headers)
        if caller is None or exchange.verb != "POST" or caller.resource not in ("/mcp", exchange.path):
            return self._ask_direct(exchange)
        return self._let_in(exchange, caller)

    async def _ask_direct(self, exchange: "FastPathRequest") -> None:
        ask = self._authenticate if exchange.verb == "POST" else self._admit
        try:
            caller = await ask(exchange.headers, exchange.peer[0] if exchange.peer else "")
            check_audience(caller, exchange.path)
        except Fault as fault:
            await exchange.answer(*self._refusal(fault, exchange.path))
            return
        await self._let_in(exchange, caller)

    def _let_in(self, exchange: "FastPathRequest", caller: Caller) -> Awaitable[None]:
        exchange.belongs(caller, self._tenures)
        body = bytes(exchange.body)
        return self._serve(
            McpHttpRequest(
                exchange.verb, exchange.path, exchange.headers, exchange.duplicate, body, caller, exchange.peer
            ),
            exchange,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers = fold(raw)
        try:
            client = scope["client"]
            address = client[0] if client else ""
            posted = scope["method"] == "POST"
            caller = await (self._authenticate if posted else self._admit)(headers, address)
            check_audience(caller, scope["path"])
            body = await read_body(scope, receive, self._max_body) if posted else b""
        except Fault as fault:
            if fault.kind is not Kind.CANCELLED:  # then nobody is there to read an answer
                await AsgiResponseWriter(scope, send).answer(*self._refusal(fault, scope["path"]))
            return
        duplicate = repeated_routing_header(raw, headers)
        inbound = McpHttpRequest(scope["method"], scope["path"], headers, duplicate, body, caller, client)
        outlet = AsgiResponseWriter(scope, send)
        outlet.belongs(caller, self._tenures)
        await self._serve(inbound, outlet)

    def _refusal(self, fault: Fault, path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        status = int(fault.details.pop("http_status", 0)) or TABLE[fault.kind].http
        headers, body = refusal(fault)
        if fault.kind is Kind.UNAUTHENTICATED:
            headers.append(self._challenge(fault, path))
        return status, headers, body


class AsgiResponseWriter:
    """`gateway.contract.Outlet` over ASGI."""

    __slots__ = ("_ending", "_gone", "_over", "_send", "_task", "_tenure")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._task = asyncio.current_task()
        extensions: Mapping[str, Any] = scope.get("extensions") or {}
        self._gone: DisconnectSignal | None = extensions.get(EXTENSION)
        self._tenure: tuple[Caller, StreamExpiry] | None = None
        self._over = False
        self._ending: asyncio.Task[None] | None = None

    def belongs(self, caller: Caller, tenures: StreamExpiry) -> None:
        self._tenure = (caller, tenures)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        if self._tenure is not None:
            caller, tenures = self._tenure
            tenures.opened(caller, self)
            self.on_gone(lambda: tenures.closed(self))

    async def write(self, chunk: bytes) -> None:
        if not self._over:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self) -> None:
        if not self._over:
            self._over = True
            if self._tenure is not None:
                self._tenure[1].closed(self)
            await self._send(_END)

    def cut(self, *, stop: bool) -> None:
        if self._over:
            return
        self._over = True
        # Begun before anybody is told, so that it is sent before the app returns.
        self._ending = asyncio.ensure_future(self._finish())
        if self._gone is not None:
            self._gone.lost()
        if stop and self._task is not None and not self._task.cancelling():
            self._ending.add_done_callback(lambda _: self.cancel())

    async def _finish(self) -> None:
        await self._send(_END)

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._gone is not None:
            self._gone(callback)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _nobody(headers: Mapping[str, str]) -> Caller | None:
    return None


_END: Message = {"type": "http.response.body", "body": b""}
