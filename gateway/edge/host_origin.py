"""Checks Host and Origin of every request against allow-lists, and adds CORS headers for allowed origins."""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.edge.error_response import render_fault
from gateway.edge.request_parsing import fold_headers
from gateway.errors import Fault, Kind

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::([0-9]{0,5}))?").fullmatch
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)").fullmatch
_DEFAULT_PORTS: Final = {"http": frozenset({"80"}), "https": frozenset({"443"})}
_EITHER_DEFAULT: Final = frozenset({"80", "443"})
_MAX_CACHED: Final = 1_024


class AllowedHosts:
    """Entries: `host` (default port), `host:port`, `host:*`, and `*.example.com` for all subdomains."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._authorities = _Authorities(_EITHER_DEFAULT)
        for entry in entries:
            self._authorities.add(entry)
        self.allows = _CachedCheck(self._authorities.has)


class AllowedOrigins:
    """Entries: `scheme://` followed by an entry of `AllowedHosts`, or `null`."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._null = False
        self._schemes: dict[str, _Authorities] = {}
        for entry in entries:
            self._add(entry.strip().lower())
        self.allows = _CachedCheck(self._has)

    def _add(self, entry: str) -> None:
        if entry == "null":
            self._null = True
            return
        parts = _ORIGIN(entry)
        if parts is None:
            raise ValueError(f"{entry!r} is not an origin such as https://app.example.com")
        scheme, authority = parts.groups()
        ports = _DEFAULT_PORTS.get(scheme, frozenset[str]())
        self._schemes.setdefault(scheme, _Authorities(ports)).add(authority)

    def _has(self, origin: str) -> bool:
        if origin == "null":
            return self._null
        parts = _ORIGIN(origin)
        if parts is None:
            return False
        authorities = self._schemes.get(parts[1])
        return authorities is not None and authorities.has(parts[2])


class _Authorities:
    """A set of `host:port`; a wildcard host is kept with its leading dot."""

    def __init__(self, default_ports: frozenset[str]) -> None:
        self._default_ports = default_ports
        self._exact: set[tuple[str, str]] = set()
        self._any_port: set[str] = set()

    def add(self, entry: str) -> None:
        text = entry.strip().lower()
        wildcard, text = text.startswith("*."), text.removeprefix("*.")
        any_port, text = text.endswith(":*"), text.removesuffix(":*")
        split = self._split(text)
        if split is None:
            raise ValueError(
                f"{entry!r} is not a host such as example.com, example.com:8080, example.com:* or *.example.com"
            )
        host, port = split
        if wildcard:
            host = f".{host}"
        if any_port:
            self._any_port.add(host)
        else:
            self._exact.add((host, port))

    def has(self, authority: str) -> bool:
        split = self._split(authority)
        if split is None:
            return False
        host, port = split
        return any(name in self._any_port or (name, port) in self._exact for name in _self_and_wildcards(host))

    def _split(self, authority: str) -> tuple[str, str] | None:
        parts = _HOST(authority)
        if parts is None:
            return None
        host, port = parts[1], parts[2] or ""
        if host.startswith("["):
            try:
                host = f"[{IPv6Address(host[1:-1]).compressed}]"
            except ValueError:
                return None
        return host, "" if port in self._default_ports else port


def _self_and_wildcards(host: str) -> Iterable[str]:
    yield host
    dot = host.find(".")
    while dot != -1:
        yield host[dot:]
        dot = host.find(".", dot + 1)


class _CachedCheck:
    """Caches a check by header value; a full cache is cleared."""

    __slots__ = ("_ask", "_known")

    def __init__(self, ask: Callable[[str], bool]) -> None:
        self._ask = ask
        self._known: dict[str, bool] = {}

    def __call__(self, value: str) -> bool:
        known = self._known.get(value)
        return self._evaluate(value) if known is None else known

    def _evaluate(self, value: str) -> bool:
        if len(self._known) >= _MAX_CACHED:
            self._known.clear()
        answer = self._known[value] = self._ask(value.strip(" \t").lower())
        return answer


Headers = list[tuple[bytes, bytes]]
_METHODS: Final = b"GET, POST, DELETE, OPTIONS"

_REQUEST_HEADERS: Final = (
    b"authorization, content-type, accept, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id, "
    b"x-correlation-id, x-server-timing, traceparent, tracestate, gatehouse-tools"
)

_RESPONSE_HEADERS: Final = (
    b"mcp-session-id, x-correlation-id, www-authenticate, retry-after, ratelimit, ratelimit-policy, server-timing"
)
_PARAM: Final = re.compile(rb"mcp-param-[a-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_POLICY_VIOLATION: Final = 1008
_WRONG_HOST: Final = Fault(
    Kind.DENIED, "This host name is not allowed.", suggested_fix="Add it to server.allowed_hosts."
)
_WRONG_ORIGIN: Final = Fault(
    Kind.DENIED, "This origin is not allowed.", suggested_fix="Add it to server.allowed_origins."
)


class GuardOutcome(NamedTuple):
    """The decision about one request."""

    response: tuple[int, Headers, bytes] | None = None
    """A refusal or the answer to a CORS preflight, to be sent instead of serving the request."""
    cors_headers: Headers = []  # noqa: RUF012  # never changed
    """Headers to add to the response of a request from an allowed origin."""


_ALLOWED: Final = GuardOutcome()


class HostOriginGuard:
    """ASGI middleware: responds 421 to a Host and 403 to an Origin that is not allowed, and answers CORS preflights.

    `health_paths` accept any Host, because probes use addresses. Raises `ValueError` for an invalid entry.
    """

    def __init__(
        self,
        app: ASGIApp,
        allowed_hosts: Iterable[str],
        allowed_origins: Iterable[str],
        health_paths: Iterable[str] = (),
    ) -> None:
        self._app = app
        self.host_allowed = AllowedHosts(allowed_hosts).allows
        self._origin_allowed = AllowedOrigins(allowed_origins).allows
        self._health_paths = frozenset(health_paths)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> GuardOutcome:
        """Decide about a request. A header sent twice arrives joined and is therefore not allowed."""
        if not self.host_allowed(headers.get("host", "")) and path not in self._health_paths:
            return _refuse(421, _WRONG_HOST)
        origin = headers.get("origin")
        if origin is None:
            return _ALLOWED
        if not self._origin_allowed(origin):
            return _refuse(403, _WRONG_ORIGIN)
        if method == "OPTIONS" and "access-control-request-method" in headers:
            return _preflight(origin, headers.get("access-control-request-headers", ""))
        return GuardOutcome(None, _cors_headers(origin))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        outcome = self.check(scope.get("method", ""), scope["path"], fold_headers(scope["headers"]))
        if outcome.response is not None:
            await _respond(scope, send, *outcome.response)
        elif outcome.cors_headers and scope["type"] == "http":
            await self._app(scope, receive, _with_headers(send, outcome.cors_headers))
        else:
            await self._app(scope, receive, send)


def default_allow_lists(host: str, port: int, public_url: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the default allowed hosts and origins of a server bound to `host` with this `public_url`."""
    public = urlsplit(public_url)
    # The address the server is bound to cannot be the name of another site.
    hosts, origins = [public.netloc], [f"{public.scheme}://{public.netloc}"]
    if host not in {"", "0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
        hosts.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    if _is_loopback(host):
        local = ("127.0.0.1:*", "localhost:*", "[::1]:*")
        hosts += local
        origins += [f"http://{name}" for name in local]
    return tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(origins))


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse(status: int, fault: Fault) -> GuardOutcome:
    return GuardOutcome((status, *render_fault(fault)))


def _preflight(origin: str, requested: str) -> GuardOutcome:
    names = (name.strip().lower().encode("latin-1") for name in requested.split(","))
    params = [name for name in names if _PARAM(name)]
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", b", ".join([_REQUEST_HEADERS, *params])),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]
    return GuardOutcome((204, headers, b""))


def _cors_headers(origin: str) -> Headers:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _RESPONSE_HEADERS),
        (b"vary", b"Origin"),
    ]


async def _respond(scope: Scope, send: Send, status: int, headers: Headers, body: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
        return
    length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, cors_headers: Headers) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Headers = list(message.get("headers", ()))
            # A route that is open to all origins sets the header itself.
            if all(name != b"access-control-allow-origin" for name, _ in headers):
                headers = [*cors_headers, *headers]
            message["headers"] = headers
        await send(message)

    return send_with_headers
