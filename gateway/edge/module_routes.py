"""Serves the HTTP and WebSocket routes of backend modules (`gateway.contract.routes`).

Authenticates each request, checks its scope, and ends it when its credential ends or its backend is no longer served.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket as StarletteSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from gateway.contract import (
    Caller,
    EndReason,
    HttpResponse,
    HttpRoute,
    ModuleRoute,
    SocketClosed,
    WebSocketRoute,
)
from gateway.edge.authentication import bearer_token, check_audience
from gateway.edge.error_response import send_fault
from gateway.edge.request_parsing import fold_headers, read_body
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import TABLE, Fault, Kind

Authenticate = Callable[[Mapping[str, str], str], Awaitable[Caller]]
"""Headers and client address -> caller. Raises `Fault`."""

RESERVED: Final = frozenset(
    (
        *("mcp", ".well-known", "oauth", "authorize", "token", "register"),
        *("api", "console", "accounts", "scim", "metrics", "healthz", "readyz"),
    )
)
"""First segments of the gateway's own paths."""
_PATH: Final = re.compile(r"(?:/(?:[A-Za-z0-9._~-]+|\{[a-z_][a-z0-9_]*\}))+")
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key"})
_CLOSE_CODES: Final[Mapping[EndReason, int]] = {"revoked": 1008, "expired": 1001, "stopped": 1001, "disconnected": 1000}
_POLICY_VIOLATION: Final = 1008
_INTERNAL_ERROR: Final = 1011
_MAX_REASON: Final = 123
"""Maximum length of a close reason in bytes (RFC 6455)."""

log = logging.getLogger("gatehouse.edge")


def find_route_problem(routes: Mapping[str, Sequence[ModuleRoute]]) -> tuple[str, str] | None:
    """Return the namespace and the problem of the first route that cannot be served; None if all can be."""
    compiled = [_CompiledRoute(namespace, route) for namespace, each in routes.items() for route in each]
    for each in compiled:
        path = each.route.path
        if not _PATH.fullmatch(path):
            return each.namespace, f"the path {path!r} of a route is malformed"
        if each.segments[0] in RESERVED or each.segments[0].startswith("{"):
            return each.namespace, f"the path {path} of a route is reserved for the gateway"
        if isinstance(each.route, HttpRoute) and each.route.method not in _METHODS:
            return each.namespace, f"the method {each.route.method!r} of the route {path} is not supported"
    for first, second in combinations(compiled, 2):
        if first.overlaps(second):
            return (
                second.namespace,
                f"its route {second} conflicts with the route {first} of backends.{first.namespace}",
            )
    return None


class ModuleRoutes:
    """The routes of all modules. `replace` changes them at any time."""

    def __init__(self, authenticate: Authenticate, stream_expiry: StreamExpiry) -> None:
        self._authenticate = authenticate
        self._stream_expiry = stream_expiry
        self._routes: dict[str, tuple[Sequence[ModuleRoute], list[_CompiledRoute]]] = {}
        self._open: dict[_RequestEnd, _CompiledRoute] = {}

    def replace(self, routes: Mapping[str, Sequence[ModuleRoute]]) -> None:
        """Serve these routes, by namespace, and end the open requests of routes that are no longer served."""
        kept = {ns: entry for ns, entry in self._routes.items() if routes.get(ns) is entry[0]}
        fresh = {ns: (each, [_CompiledRoute(ns, route) for route in each]) for ns, each in routes.items()}
        self._routes = {**fresh, **kept}
        served = {route for _, compiled in self._routes.values() for route in compiled}
        for end, route in list(self._open.items()):
            if route not in served:
                end.set("stopped")

    def served(self) -> list[ModuleRoute]:
        return [route for routes, _ in self._routes.values() for route in routes]

    def close_sockets(self) -> None:
        """Close the open WebSockets: the gateway is shutting down."""
        for end, route in list(self._open.items()):
            if isinstance(route.route, WebSocketRoute):
                end.set("stopped")

    def find(self, scope: Scope) -> ASGIApp | None:
        """Return the app for this request; None if no module has a route with its path."""
        is_socket = scope["type"] == "websocket"
        parts = scope["path"].split("/")[1:]
        matches = [
            (route, params)
            for _, compiled in self._routes.values()
            for route in compiled
            if isinstance(route.route, WebSocketRoute) is is_socket and (params := route.match(parts)) is not None
        ]
        if not matches:
            return None
        for route, params in matches:
            if isinstance(route.route, WebSocketRoute):
                return partial(self._serve_socket, route, route.route, params)
            if route.route.method == scope["method"]:
                return partial(self._serve_http, route, route.route, params)
        methods = [route.route.method for route, _ in matches if isinstance(route.route, HttpRoute)]
        return partial(_reject_method, methods)

    async def _serve_http(
        self,
        route: "_CompiledRoute",
        http: HttpRoute,
        params: Mapping[str, str],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            request = await self._authorize(route, params, scope)
            response = await self._handle(route, http, _HttpRequest(request, receive, http.max_body_bytes))
        except Fault as fault:
            status = int(fault.details.get("http_status", 0)) or TABLE[fault.kind].http
            challenge = [(b"www-authenticate", b"Bearer")] if fault.kind is Kind.UNAUTHENTICATED else []
            await send_fault(send, status, fault, challenge)
            return
        headers = {"content-length": str(len(response.body)), **response.headers}
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if response.status == 204:
            raw = [each for each in raw if each[0] != b"content-length"]
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await send({"type": "http.response.body", "body": response.body})

    async def _handle(self, route: "_CompiledRoute", http: HttpRoute, request: "_HttpRequest") -> HttpResponse:
        self._open[request.end] = route
        self._stream_expiry.add(request.caller, request.end)
        try:
            return await http.handler(request)
        except Fault:
            raise
        except Exception as exc:  # a module may raise anything
            log.exception("route %s of backends.%s: the handler failed", route, route.namespace)
            raise Fault(Kind.INTERNAL, "The request failed.") from exc
        finally:
            self._stream_expiry.remove(request.end)
            del self._open[request.end]

    async def _serve_socket(
        self,
        route: "_CompiledRoute",
        websocket: WebSocketRoute,
        params: Mapping[str, str],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        starlette = StarletteSocket(scope, receive, send)
        try:
            request = await self._authorize(route, params, scope)
        except Fault as fault:
            await starlette.close(_POLICY_VIOLATION, fault.message)
            return
        socket = _Socket(request, starlette)
        end = _RequestEnd()
        self._open[end] = route
        self._stream_expiry.add(request.caller, end)
        handler = asyncio.ensure_future(websocket.handler(socket))
        ended = asyncio.ensure_future(end.wait())
        try:
            await asyncio.wait((handler, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stream_expiry.remove(end)
            del self._open[end]
            handler.cancel()
            ended.cancel()
            results = await asyncio.gather(handler, ended, return_exceptions=True)
        if end.reason is not None:
            await socket.close(_CLOSE_CODES[end.reason])
            return
        await socket.close(*_close_code(results[0], route, socket))

    async def _authorize(
        self, route: "_CompiledRoute", params: Mapping[str, str], scope: Scope
    ) -> "_AuthorizedRequest":
        headers = fold_headers(scope["headers"])
        own_header = route.route.credential_header
        if own_header is not None and (sent := headers.pop(own_header.lower(), None)) is not None:
            headers["authorization"] = f"Bearer {sent}"
        client = scope.get("client")
        caller = await self._authenticate(headers, client[0] if client else "")
        check_audience(caller, f"/mcp/{route.namespace}")
        needed = route.route.scope
        if needed not in caller.scopes:
            hint = f"Create a key with it: gatehouse key create --scope {needed}."
            raise Fault(Kind.DENIED, f"This credential lacks the scope {needed}. {hint}")
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        shown = {name: value for name, value in headers.items() if name not in _CREDENTIAL_HEADERS}
        return _AuthorizedRequest(caller, bearer_token(headers), params, query, shown)


def _close_code(result: object, route: "_CompiledRoute", socket: "_Socket") -> tuple[int, str]:
    """Close code and reason for the outcome of a handler."""
    if isinstance(result, Fault):
        # Before it is accepted, the connection is rejected with 403 whatever the code.
        return (_INTERNAL_ERROR if socket.accepted else _POLICY_VIOLATION), result.message
    if isinstance(result, Exception) and not isinstance(result, SocketClosed):
        log.error("route %s of backends.%s: the handler failed", route, route.namespace, exc_info=result)
        return _INTERNAL_ERROR, ""
    return 1000, ""


class _RequestEnd:
    """Why a request ended; implements `ExpiringStream`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: EndReason | None = None

    def end(self, *, stop: bool) -> None:
        self.set("revoked" if stop else "expired")

    def set(self, reason: EndReason) -> None:
        self.reason = self.reason or reason
        self._event.set()

    async def wait(self) -> EndReason:
        await self._event.wait()
        assert self.reason is not None
        return self.reason


@dataclass(frozen=True, slots=True)
class _AuthorizedRequest:
    caller: Caller
    credential: str = field(repr=False)
    path_params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]


class _HttpRequest:
    """`gateway.contract.HttpRequest`."""

    def __init__(self, request: _AuthorizedRequest, receive: Receive, max_body_bytes: int) -> None:
        self.caller, self.credential = request.caller, request.credential
        self.path_params, self.query, self.headers = request.path_params, request.query, request.headers
        self.end = _RequestEnd()
        self._receive = receive
        self._max_body_bytes = max_body_bytes

    async def body(self) -> bytes:
        return await read_body(self.headers, self._receive, self._max_body_bytes)

    async def wait_ended(self) -> EndReason:
        watching = asyncio.ensure_future(self._watch_connection())
        try:
            return await self.end.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch_connection(self) -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self.end.set("disconnected")


class _Socket:
    """`gateway.contract.WebSocket`."""

    def __init__(self, request: _AuthorizedRequest, socket: StarletteSocket) -> None:
        self.caller, self.credential = request.caller, request.credential
        self.path_params, self.query, self.headers = request.path_params, request.query, request.headers
        self._socket = socket

    @property
    def accepted(self) -> bool:
        return self._socket.client_state is not WebSocketState.CONNECTING

    async def accept(self) -> None:
        try:
            await self._socket.accept()
        except (RuntimeError, WebSocketDisconnect) as exc:
            raise SocketClosed from exc

    async def receive(self) -> str | bytes:
        try:
            message = await self._socket.receive()
        except RuntimeError as exc:
            raise SocketClosed from exc
        if message["type"] != "websocket.receive":
            raise SocketClosed
        text = message.get("text")
        return text if text is not None else message["bytes"]

    async def send(self, message: str | bytes) -> None:
        try:
            await (self._socket.send_text(message) if isinstance(message, str) else self._socket.send_bytes(message))
        except (RuntimeError, WebSocketDisconnect) as exc:
            raise SocketClosed from exc

    async def close(self, code: int = 1000, reason: str = "") -> None:
        with suppress(RuntimeError, WebSocketDisconnect):  # already closed
            await self._socket.close(code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))


class _CompiledRoute:
    """A route with its path split into segments; compared by identity."""

    def __init__(self, namespace: str, route: ModuleRoute) -> None:
        self.namespace = namespace
        self.route = route
        self.segments = route.path.split("/")[1:] or [""]

    def __str__(self) -> str:
        method = self.route.method if isinstance(self.route, HttpRoute) else "WebSocket"
        return f"{method} {self.route.path}"

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        if len(parts) != len(self.segments):
            return None
        params: dict[str, str] = {}
        for segment, part in zip(self.segments, parts, strict=True):
            if segment.startswith("{") and part:
                params[segment[1:-1]] = part
            elif segment != part:
                return None
        return params

    def overlaps(self, other: "_CompiledRoute") -> bool:
        """Whether a request could match both."""
        methods = [each.route.method if isinstance(each.route, HttpRoute) else "" for each in (self, other)]
        return (
            methods[0] == methods[1]
            and len(self.segments) == len(other.segments)
            and all(
                mine == theirs or mine.startswith("{") or theirs.startswith("{")
                for mine, theirs in zip(self.segments, other.segments, strict=True)
            )
        )


async def _reject_method(allowed: Sequence[str], scope: Scope, receive: Receive, send: Send) -> None:
    fault = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
    await send_fault(send, 405, fault, [(b"allow", ", ".join(sorted(set(allowed))).encode())])
