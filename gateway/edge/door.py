"""From ASGI to one authenticated, fully read request, and back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from starlette.types import Receive, Scope, Send

from gateway.contract import Caller, Inbound, Outlet
from gateway.edge.body import read_body
from gateway.edge.gone import EXTENSION
from gateway.edge.headers import RawHeaders, fold, repeated_routing_header
from gateway.edge.refusal import refusal
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> who calls. Raises `Fault`."""

_CHALLENGE: Final = (b"www-authenticate", b"Bearer")


class Direct(Outlet, Protocol):
    """A request read whole, and where its answer goes."""

    path: str
    headers: RawHeaders
    address: str
    body: bytearray


class Door:
    """The ASGI app of every MCP endpoint: no credential, no service."""

    def __init__(
        self, authenticate: Authenticate, serve: Callable[[Inbound, Outlet], Awaitable[None]], max_body: int
    ) -> None:
        self._authenticate = authenticate
        self._serve = serve
        self._max_body = max_body

    async def serve_direct(self, exchange: "Direct") -> None:
        """The same for a request that did not come by ASGI."""
        headers = fold(exchange.headers)
        try:
            caller = await self._authenticate(headers, exchange.address)
            _check_audience(caller, exchange.path)
        except Fault as fault:
            status, shown, body = _refusal(fault)
            await exchange.answer(status, shown, body)
            return
        duplicate = repeated_routing_header(exchange.headers, headers)
        inbound = Inbound("POST", exchange.path, headers, duplicate, bytes(exchange.body), caller)
        await self._serve(inbound, exchange)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers = fold(raw)
        try:
            client = scope["client"]
            caller = await self._authenticate(headers, client[0] if client else "")
            _check_audience(caller, scope["path"])
            body = await read_body(scope, receive, self._max_body) if scope["method"] == "POST" else b""
        except Fault as fault:
            if fault.kind is not Kind.CANCELLED:  # then nobody is there to read an answer
                status, shown, body = _refusal(fault)
                await AsgiOutlet(scope, send).answer(status, shown, body)
            return
        inbound = Inbound(scope["method"], scope["path"], headers, repeated_routing_header(raw, headers), body, caller)
        await self._serve(inbound, AsgiOutlet(scope, send))


class AsgiOutlet:
    """`gateway.contract.Outlet` over ASGI."""

    __slots__ = ("_on_gone", "_send", "_task")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._task = asyncio.current_task()
        extensions: Mapping[str, Any] = scope.get("extensions") or {}
        self._on_gone: Callable[[Callable[[], None]], None] | None = extensions.get(EXTENSION)

    async def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self._on_gone is not None:
            self._on_gone(callback)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _check_audience(caller: Caller, path: str) -> None:
    if caller.resource not in ("/mcp", path):
        raise Fault(Kind.UNAUTHENTICATED, "The credential is for another endpoint.", details={"reason": "invalid"})


def _refusal(fault: Fault) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    status = int(fault.details.pop("http_status", 0)) or TABLE[fault.kind].http
    headers, body = refusal(fault)
    if fault.kind is Kind.UNAUTHENTICATED:
        headers.append(_CHALLENGE)
    return status, headers, body
