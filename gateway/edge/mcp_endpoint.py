"""The MCP endpoint: authenticates a request, reads its body, and passes it to `gateway.protocol`.

One implementation serves both kinds of exchange: `HttpExchange` of our HTTP protocol, and `AsgiExchange`.
`RequestRouter` decides which requests of our HTTP protocol it gets directly.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from starlette.types import Receive, Scope, Send

from gateway.contract import Caller, McpHttpRequest, ResponseWriter
from gateway.edge.asgi import AsgiExchange, run_asgi
from gateway.edge.authentication import Header, check_audience
from gateway.edge.error_response import render_fault
from gateway.edge.host_origin import HostOriginGuard
from gateway.edge.http_exchange import HttpExchange
from gateway.edge.request_parsing import read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> caller. Raises `Fault`."""

CachedCaller = Callable[[Mapping[str, str]], Caller | None]
"""Headers -> caller, if the credential was verified recently; None otherwise."""

Challenge = Callable[[Fault, str], Header]
"""Fault and request path -> `WWW-Authenticate` header."""

_MCP_TARGET: Final = re.compile(rb"/mcp(?:/[A-Za-z0-9._~/-]*)?").fullmatch
"""Targets that need no decoding."""


class McpExchange(ResponseWriter, Protocol):
    """A request to the MCP endpoint, which is also its response writer."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def duplicate_header(self) -> str | None: ...

    @property
    def peer(self) -> tuple[str, int] | None: ...

    @property
    def receive(self) -> Receive: ...

    @property
    def received_body(self) -> bytes | None:
        """The body if it has arrived completely, else None: `read_body` reads it."""
        ...

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        """End a streamed response when this caller's credential expires."""
        ...


class McpEndpoint:
    """Serves every MCP endpoint. Every request needs a credential."""

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

    def serve(self, exchange: McpExchange) -> Awaitable[None]:
        """Serve a request. A plain function: with a cached credential and a complete body it adds no coroutine."""
        if exchange.method == "POST" and (body := exchange.received_body) is not None:
            caller = self._cached_caller(exchange.headers)
            if caller is not None and caller.resource in ("/mcp", exchange.path):
                return self._serve_caller(exchange, caller, body)
        return self._authenticate_and_serve(exchange)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(AsgiExchange(scope, receive, send))

    async def _authenticate_and_serve(self, exchange: McpExchange) -> None:
        is_post = exchange.method == "POST"
        authenticate = self._authenticate if is_post else self._authenticate_active
        try:
            caller = await authenticate(exchange.headers, exchange.peer[0] if exchange.peer else "")
            check_audience(caller, exchange.path)
            body = await read_body(exchange.headers, exchange.receive, self._max_body) if is_post else b""
        except Fault as fault:
            if fault.kind is not Kind.CANCELLED:  # the client has disconnected
                await exchange.send(*self._error_response(fault, exchange.path))
            return
        await self._serve_caller(exchange, caller, body)

    def _serve_caller(self, exchange: McpExchange, caller: Caller, body: bytes) -> Awaitable[None]:
        exchange.expire_with(caller, self._stream_expiry)
        request = McpHttpRequest(
            exchange.method, exchange.path, exchange.headers, exchange.duplicate_header, body, caller, exchange.peer
        )
        return self._serve(request, exchange)

    def _error_response(self, fault: Fault, path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        status = int(fault.details.pop("http_status", 0)) or TABLE[fault.kind].http
        headers, body = render_fault(fault, as_rpc=fault.kind is Kind.TOO_LARGE)
        if fault.kind is Kind.UNAUTHENTICATED:
            headers.append(self._challenge(fault, path))
        return status, headers, body


class RequestRouter:
    """Serves the requests of our HTTP protocol: those of the MCP endpoint directly, all others by the ASGI app."""

    def __init__(self, endpoint: McpEndpoint, app: HostOriginGuard) -> None:
        """`app` serves everything, the MCP endpoint included; its Host and Origin rules also apply here."""
        self._endpoint = endpoint
        self._app = app

    def serve(self, exchange: HttpExchange) -> Awaitable[None]:
        if _MCP_TARGET(exchange.target) is None:
            return run_asgi(self._app, exchange)
        exchange.raw_headers = []  # an open stream should not keep them
        outcome = self._app.check(exchange.method, exchange.path, exchange.headers)
        if outcome.response is not None:
            return exchange.send(*outcome.response)
        exchange.cors_headers = outcome.cors_headers
        return self._endpoint.serve(exchange)


def _no_cached_caller(headers: Mapping[str, str]) -> Caller | None:
    return None
