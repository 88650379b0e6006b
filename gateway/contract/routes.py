"""Routes that a backend module adds to the gateway with `Host.add_routes`.

The gateway authenticates each request, checks the scope of the route, and only then calls the handler.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from gateway.contract.caller import Caller

EndReason = Literal["disconnected", "expired", "revoked", "stopped"]
"""The client disconnected, its credential expired or was revoked, or the gateway stopped serving the route."""


class SocketClosed(Exception):
    """The WebSocket is closed."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response of a handler. A handler raises a `Fault` for an error."""

    status: int = 204
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def json(cls, value: object, status: int = 200) -> "HttpResponse":
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        return cls(status, msgspec.json.encode(value), headers)


class RouteRequest(Protocol):
    """The authenticated request of an HTTP or WebSocket route."""

    @property
    def caller(self) -> Caller: ...

    @property
    def credential(self) -> str:
        """The text of the caller's credential. Do not store it, log it or send it to other workers."""
        ...

    @property
    def path_params(self) -> Mapping[str, str]:
        """Values of the `{name}` parts of the path."""
        ...

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters; the last value of a repeated one."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name, without those that carry the credential."""
        ...


class HttpRequest(RouteRequest, Protocol):
    """Request of an `HttpRoute`."""

    async def body(self) -> bytes:
        """Read the whole body, once. Raises `Fault(TOO_LARGE)` over the route's `max_body_bytes`."""
        ...

    async def wait_ended(self) -> EndReason:
        """Wait until no response is expected any more. Call it after `body`."""
        ...


class WebSocket(RouteRequest, Protocol):
    """Connection of a `WebSocketRoute`.

    The handler is cancelled, and the socket closed, when the credential ends or the route is no longer served.
    """

    async def accept(self) -> None:
        """Complete the handshake. A handler that raises a `Fault` before it rejects the connection."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next message. Raises `SocketClosed`."""
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message. Raises `SocketClosed`."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the socket; does nothing if it is closed. A handler that returns closes it with code 1000."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoute:
    """An HTTP route."""

    method: str
    path: str
    """Absolute path; `{name}` stands for one segment. Paths of the gateway itself are reserved."""
    scope: str
    """Scope that the credential needs: one of `Manifest.scopes`, or a scope of the gateway."""
    handler: Callable[[HttpRequest], Awaitable[HttpResponse]]
    max_body_bytes: int = 1024 * 1024
    """Maximum body size; `server.max_body_bytes` applies as well."""
    credential_header: str | None = None
    """A further header that may carry the credential; it takes precedence over `Authorization`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketRoute:
    """A WebSocket route. Messages are limited to 8 MiB."""

    path: str
    scope: str
    handler: Callable[[WebSocket], Awaitable[None]]
    credential_header: str | None = None


ModuleRoute = HttpRoute | WebSocketRoute
