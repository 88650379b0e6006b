"""The one HTTP client for addresses that somebody else may have chosen.

A URL is judged, its name looked up once, every address judged, and the connection goes to such an address: a name that
answers differently the second time is never asked a second time.
"""

import re
import socket
import ssl
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

import anyio
import httpcore
import httpx

from gateway.errors import Fault, Kind

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses. Raises `OSError` when there is none."""

Vouched = frozenset[str] | bool
"""Hosts, or all, that the operator vouches for: these may be private, on any port, over plain http."""

MAX_BYTES: Final = 8 * 1024 * 1024

_PORTS: Final = (80, 443)
_ATTEMPTS: Final = 4
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
# System resolvers read such a name as an IPv4 address: 0177.1, 0x7f000001, 2130706433.
_NUMERIC: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")

# Ours, because the standard library's `is_global` differs between releases and calls several of these global. Among
# them are the clouds' metadata services; 168.63.129.16 is public in name, but answered by the machine underneath.
_SPECIAL_V4: Final = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
    192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3
"""
# Inside 2000::/3 only; what embeds an IPv4 address (Teredo in 2001::/23, 6to4 in 2002::/16) can embed a private one.
_SPECIAL_V6: Final = "2001::/23 2001:db8::/32 2002::/16 3ffe::/16 3fff::/20"
_GLOBAL: Final = (ip_network("0.0.0.0/0"), ip_network("2000::/3"))
_SPECIAL: Final = tuple(ip_network(text) for text in (_SPECIAL_V4 + _SPECIAL_V6).split())


@dataclass(frozen=True, slots=True)
class Target:
    """Where a judged URL leads."""

    scheme: str
    host: str
    """Lower case; an IPv6 address is in its shortest form, without brackets."""
    port: int
    path: str
    """With the query, as it is sent."""
    vouched: bool


def is_public(address: str) -> bool:
    """Whether it is a globally routable unicast address that holds no other address inside."""
    parsed = _address(address)
    return (
        parsed is not None
        and any(parsed in network for network in _GLOBAL)
        and not any(parsed in network for network in _SPECIAL)
    )


def target(url: str, *, allow_private: Vouched = frozenset()) -> Target:
    """What the URL names. Raises `Fault(DENIED)` for one that may not be fetched, whatever its name resolves to."""
    authority = _AUTHORITY.match(url)
    if authority is None or not authority[1].isascii():
        raise Fault(Kind.DENIED, "The URL must be absolute, with a host in plain ASCII.")
    if "@" in authority[1]:
        raise Fault(Kind.DENIED, "The URL must not carry a user name or password.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise Fault(Kind.DENIED, "The URL cannot be read.") from exc
    host = _host(parsed.raw_host.decode("ascii"))
    vouched = _vouched(host, allow_private)
    if parsed.scheme != "https" and not (parsed.scheme == "http" and vouched):
        raise Fault(Kind.DENIED, f"{host} may only be reached by https.")
    port = parsed.port if parsed.port is not None else {"http": 80, "https": 443}[parsed.scheme]
    if not (port in _PORTS or (vouched and 0 < port < 65536)):
        raise Fault(Kind.DENIED, f"{host} may not be reached on port {port}.")
    if not vouched and _address(host):
        _judge(host, [host])
    return Target(parsed.scheme, host, port, parsed.raw_path.decode("ascii"), vouched)


async def resolve(target: Target, resolver: Resolver | None = None) -> list[str]:
    """Its addresses, looked up once. Raises `Fault(DENIED)` unless all are public or the host is vouched for."""
    return await _addresses(target.host, target.port, target.vouched, resolver or system_resolver)


async def system_resolver(host: str, port: int) -> list[str]:
    """Look the name up as this machine does."""
    found = await get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def client(
    *,
    allow_private: Vouched = frozenset(),
    max_bytes: int = MAX_BYTES,
    timeout: float = 10.0,
    resolver: Resolver | None = None,
    verify: ssl.SSLContext | None = None,
    network: httpcore.AsyncNetworkBackend | None = None,
) -> httpx.AsyncClient:
    """A guarded client. What it refuses or fails at is a `Fault`; it follows no redirect and keeps no cookie.

    `timeout` bounds the whole of a request, its answer's last byte included. `verify` defaults to the well-known
    authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR.
    """
    # httpcore declares a second, empty AnyIOBackend for installations without anyio.
    below = network or httpcore.AnyIOBackend()
    pinned = Pinned(allow_private, resolver or system_resolver, below)  # pyright: ignore[reportArgumentType]
    pool = httpcore.AsyncConnectionPool(
        ssl_context=verify or httpx.create_ssl_context(),
        max_connections=16,
        max_keepalive_connections=4,
        keepalive_expiry=15.0,
        network_backend=pinned,
    )
    return _Client(
        allow_private,
        transport=Guarded(pool, allow_private, max_bytes, timeout),
        timeout=timeout,
        trust_env=False,
        headers={"User-Agent": "gatehouse", "Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )


@dataclass(frozen=True, slots=True)
class Pinned(httpcore.AsyncNetworkBackend):
    """Connects to judged addresses, never to a name; TLS and the Host header still speak of the name."""

    allow_private: Vouched
    resolver: Resolver
    network: httpcore.AsyncNetworkBackend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = await _addresses(host, port, _vouched(host, self.allow_private), self.resolver)
        *others, last = found[:_ATTEMPTS]
        share = None if timeout is None else timeout / (len(others) + 1)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self.network.connect_tcp(address, port, share, local_address, socket_options)
        return await self.network.connect_tcp(last, port, share, local_address, socket_options)


@dataclass(frozen=True, slots=True)
class Guarded(httpx.AsyncBaseTransport):
    """Sends only to targets that may be reached, and lets in only answers that are plain, short and quick."""

    pool: httpcore.AsyncConnectionPool
    allow_private: Vouched
    max_bytes: int
    seconds: float

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = anyio.current_time() + self.seconds
        there = target(str(request.url), allow_private=self.allow_private)
        with _translated(there.host, deadline):
            answer = await self.pool.handle_async_request(_outgoing(request, there))
        body = _Body(answer, there.host, self.max_bytes, deadline)
        response = httpx.Response(answer.status, headers=answer.headers, stream=body)
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            await body.aclose()
            raise Fault(Kind.DENIED, f"{there.host} sent a compressed answer, which is not accepted.")
        return response

    async def aclose(self) -> None:
        await self.pool.aclose()


@dataclass(frozen=True, slots=True)
class _Body(httpx.AsyncByteStream):
    answer: httpcore.Response
    host: str
    max_bytes: int
    deadline: float

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        chunks = self.answer.aiter_stream()
        while (chunk := await self._next(chunks)) is not None:
            size += len(chunk)
            if size > self.max_bytes:
                message = f"{self.host} sent more than {self.max_bytes} bytes."
                raise Fault(Kind.TOO_LARGE, message, details={"max_bytes": self.max_bytes})
            yield chunk

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        with _translated(self.host, self.deadline):
            return await anext(chunks, None)

    async def aclose(self) -> None:
        await self.answer.aclose()


class _Client(httpx.AsyncClient):
    """Judges the URL as it was written, before httpx rewrites it."""

    def __init__(self, allow_private: Vouched, **options: Any) -> None:
        super().__init__(**options)
        self._allow_private = allow_private

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        target(str(url), allow_private=self._allow_private)
        return super().build_request(method, url, **options)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        options["follow_redirects"] = False
        with _translated(request.url.raw_host.decode("ascii")):
            return await super().send(request, **options)


# The httpx names are what a stand-in for the far side raises; the last two are what httpx makes of a Location that it
# cannot read.
_FAILURES: Final[Mapping[type[Exception], tuple[Kind, str]]] = {
    httpcore.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpx.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpcore.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpx.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpcore.LocalProtocolError: (Kind.INTERNAL, "The request to {} could not be written."),
    httpcore.RemoteProtocolError: (Kind.UNAVAILABLE, "{} broke the rules of HTTP."),
    httpx.RemoteProtocolError: (Kind.UNAVAILABLE, "{} broke the rules of HTTP."),
    httpx.InvalidURL: (Kind.UNAVAILABLE, "{} redirects to what is not a URL."),
    UnicodeError: (Kind.UNAVAILABLE, "{} redirects to what is not a URL."),
}


@contextmanager
def _translated(host: str, deadline: float = float("inf")) -> Generator[None]:
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
    except tuple(_FAILURES) as exc:
        kind, words = next(row for failure, row in _FAILURES.items() if isinstance(exc, failure))
        raise Fault(kind, words.format(host)) from exc
    if scope.cancelled_caught:
        raise Fault(Kind.TIMEOUT, f"{host} did not answer in time.")


def _outgoing(request: httpx.Request, there: Target) -> httpcore.Request:
    assert isinstance(request.stream, httpx.AsyncByteStream)
    request.headers["Host"] = request.url.netloc.decode("ascii")
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=there.scheme, host=there.host, port=there.port, target=there.path),
        headers=request.headers.raw,
        content=request.stream,
        # Nothing else: other extensions could name another TLS host or request target than the judged one.
        extensions={"timeout": request.extensions.get("timeout", {})},
    )


async def _addresses(host: str, port: int, vouched: bool, resolver: Resolver) -> list[str]:
    try:
        found = [host] if _address(host) else list(await resolver(host, port))
    except OSError as exc:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.") from exc
    if not found:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.")
    if not vouched:
        _judge(host, found)
    return found


def _judge(host: str, addresses: Sequence[str]) -> None:
    if not all(is_public(address) for address in addresses):
        raise Fault(Kind.DENIED, f"{host} is not on the public internet.")


def _vouched(host: str, allow_private: Vouched) -> bool:
    return allow_private if isinstance(allow_private, bool) else host in allow_private


def _host(text: str) -> str:
    if address := _address(text):
        return str(address)
    if not _NAME.fullmatch(text) or _NUMERIC.fullmatch(text):
        raise Fault(Kind.DENIED, f"{text[:80]!a} is not a plain host name.")
    return text


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None
