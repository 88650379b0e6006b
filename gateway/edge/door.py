"""From ASGI to one authenticated, fully read request, and back."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from gateway.contract import Caller, Inbound
from gateway.edge.body import read_body
from gateway.edge.gone import EXTENSION
from gateway.edge.headers import fold, repeated_routing_header
from gateway.edge.refusal import refusal
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> who calls. Raises `Fault`."""

_CHALLENGE: Final = (b"www-authenticate", b"Bearer")


class Door:
    """The ASGI app of every MCP endpoint: no credential, no service."""

    def __init__(
        self, authenticate: Authenticate, serve: Callable[[Inbound, "AsgiOutlet"], Awaitable[None]], max_body: int
    ) -> None:
        self._authenticate = authenticate
        self._serve = serve
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        headers = fold(raw)
        try:
            client = scope["client"]
            caller = await self._authenticate(headers, client[0] if client else "")
            _check_audience(caller, scope["path"])
            body = await read_body(scope, receive, self._max_body) if scope["method"] == "POST" else b""
        except Fault as fault:
            await _refuse(send, fault)
            return
        inbound = Inbound(scope["method"], scope["path"], headers, repeated_routing_header(raw, headers), body, caller)
        await self._serve(inbound, AsgiOutlet(scope, send))


class AsgiOutlet:
    """`gateway.contract.Outlet` over ASGI."""

    __slots__ = ("_on_gone", "_send")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
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


def _check_audience(caller: Caller, path: str) -> None:
    if caller.resource not in ("/mcp", path):
        raise Fault(Kind.UNAUTHENTICATED, "The credential is for another endpoint.", details={"reason": "invalid"})


async def _refuse(send: Send, fault: Fault) -> None:
    if fault.kind is Kind.CANCELLED:
        return  # nobody is there to read an answer
    status = int(fault.details.pop("http_status", 0)) or TABLE[fault.kind].http
    more = [_CHALLENGE] if fault.kind is Kind.UNAUTHENTICATED else []
    headers, body = refusal(fault)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})
