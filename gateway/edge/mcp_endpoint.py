"""The MCP endpoint: authenticates a request, reads its body, and passes it to `gateway.protocol`.

Requests arrive by ASGI (`__call__`) or by the fast path (`serve_fast_path`). `DisconnectSignal` reports a client's
disconnect to the request it interrupts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.types import Message, Receive, Scope, Send

from gateway.contract import Caller, McpHttpRequest, ResponseWriter
from gateway.edge.authentication import Header, check_audience
from gateway.edge.error_response import render_fault
from gateway.edge.request_parsing import duplicate_routing_header, fold_headers, read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

EXTENSION = "gatehouse.gone"
"""Key in `scope["extensions"]`."""


class DisconnectSignal:
    """`signal(callback)` calls back at most once: on disconnect, or immediately if the client has disconnected.

    Callbacks are dropped once the response is complete.
    """

    # Class attributes until they change: most requests complete without a callback.
    _callbacks: tuple[Callable[[], None], ...] = ()
    _over = False
    _lost = False

    def __call__(self, callback: Callable[[], None]) -> None:
        if self._lost:
            callback()
        elif not self._over:
            self._callbacks += (callback,)

    def complete(self) -> None:
        """The response is complete: drop the callbacks."""
        self._over = True
        self._callbacks = ()

    def disconnect(self) -> None:
        """The client disconnected. No effect after `complete`."""
        if self._over:
            return
        self._over = self._lost = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback()


Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> caller. Raises `Fault`."""

CachedCaller = Callable[[Mapping[str, str]], Caller | None]
"""Headers -> caller, if the credential was verified recently; None otherwise."""

Challenge = Callable[[Fault, str], Header]
"""Fault and request path -> `WWW-Authenticate` header."""


class FastPathRequest(ResponseWriter, Protocol):
    """A complete request on the fast path, which is also its response writer."""

    method: str
    path: str
    headers: dict[str, str]
    duplicate_header: str | None
    body: bytes | bytearray
    peer: tuple[str, int] | None

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        """End a streamed response when this caller's credential expires."""
        ...


class McpEndpoint:
    """The ASGI app of every MCP endpoint. Every request needs a credential."""

    def __init__(
        self,
        authenticate: Authenticate,
        serve: Callable[[McpHttpRequest, ResponseWriter], Awaitable[None]],
        max_body: int,
        challenge: Challenge,
        stream_expiry: StreamExpiry,
        authenticate_active: Authenticate | None = None,
        cached_caller: CachedCaller | None = None,
    ) -> None:
        """`authenticate_active` is used for requests without a policy check (all but POST); default: `authenticate`.

        `cached_caller` avoids an await for recently verified credentials.
        """
        self._authenticate = authenticate
        self._cached_caller = cached_caller or _no_cached_caller
        self._authenticate_active = authenticate_active or authenticate
        self._serve = serve
        self._max_body = max_body
        self._challenge = challenge
        self._stream_expiry = stream_expiry

    def serve_fast_path(self, exchange: "FastPathRequest") -> Awaitable[None]:
        """Serve a request of the fast path. A plain function: a cached credential needs no extra coroutine."""
        caller = self._cached_caller(exchange.headers)
        if caller is None or exchange.method != "POST" or caller.resource not in ("/mcp", exchange.path):
            return self._authenticate_and_serve(exchange)
        return self._serve_caller(exchange, caller)

    async def _authenticate_and_serve(self, exchange: "FastPathRequest") -> None:
        ask = self._authenticate if exchange.method == "POST" else self._authenticate_active
        try:
            caller = await ask(exchange.headers, exchange.peer[0] if exchange.peer else "")
            check_audience(caller, exchange.path)
        except Fault as fault:
            await exchange.send(*self._error_response(fault, exchange.path))
            return
        await self._serve_caller(exchange, caller)

    def _serve_caller(self, exchange: "FastPathRequest", caller: Caller) -> Awaitable[None]:
        exchange.expire_with(caller, self._stream_expiry)
        body = bytes(exchange.body)
        return self._serve(
            McpHttpRequest(
                exchange.method, exchange.path, exchange.headers, exchange.duplicate_header, body, caller, exchange.peer
            ),
            exchange,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers = fold_headers(raw)
        try:
            client = scope["client"]
            address = client[0] if client else ""
            is_post = scope["method"] == "POST"
            caller = await (self._authenticate if is_post else self._authenticate_active)(headers, address)
            check_audience(caller, scope["path"])
            body = await read_body(scope, receive, self._max_body) if is_post else b""
        except Fault as fault:
            if fault.kind is not Kind.CANCELLED:  # the client has disconnected
                await AsgiResponseWriter(scope, send).send(*self._error_response(fault, scope["path"]))
            return
        duplicate = duplicate_routing_header(raw, headers)
        request = McpHttpRequest(scope["method"], scope["path"], headers, duplicate, body, caller, client)
        writer = AsgiResponseWriter(scope, send)
        writer.expire_with(caller, self._stream_expiry)
        await self._serve(request, writer)

    def _error_response(self, fault: Fault, path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        status = int(fault.details.pop("http_status", 0)) or TABLE[fault.kind].http
        headers, body = render_fault(fault)
        if fault.kind is Kind.UNAUTHENTICATED:
            headers.append(self._challenge(fault, path))
        return status, headers, body


class AsgiResponseWriter:
    """Implements `gateway.contract.ResponseWriter` over ASGI."""

    __slots__ = ("_ending", "_expiry", "_gone", "_over", "_send", "_task")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._task = asyncio.current_task()
        extensions: Mapping[str, Any] = scope.get("extensions") or {}
        self._gone: DisconnectSignal | None = extensions.get(EXTENSION)
        self._expiry: tuple[Caller, StreamExpiry] | None = None
        self._over = False
        self._ending: asyncio.Task[None] | None = None

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        self._expiry = (caller, stream_expiry)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        if self._expiry is not None:
            caller, stream_expiry = self._expiry
            stream_expiry.add(caller, self)
            self.on_disconnect(lambda: stream_expiry.remove(self))

    async def write(self, chunk: bytes) -> None:
        if not self._over:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self) -> None:
        if not self._over:
            self._over = True
            if self._expiry is not None:
                self._expiry[1].remove(self)
            await self._send(_END)

    def end(self, *, stop: bool) -> None:
        if self._over:
            return
        self._over = True
        # Started before the callbacks run, so that it is sent before the app returns.
        self._ending = asyncio.ensure_future(self._finish())
        if self._gone is not None:
            self._gone.disconnect()
        if stop and self._task is not None and not self._task.cancelling():
            self._ending.add_done_callback(lambda _: self.cancel())

    async def _finish(self) -> None:
        await self._send(_END)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self._gone is not None:
            self._gone(callback)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _no_cached_caller(headers: Mapping[str, str]) -> Caller | None:
    return None


_END: Message = {"type": "http.response.body", "body": b""}
