"""What goes wrong on the way out, as faults.

The guarded client: pinned connections, bounded answers.
"""

import os
import ssl
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import anyio
import httpcore
import httpx

from gateway.errors import Fault, Kind
from gateway.outbound.target import OutboundTarget, Resolver, Vouched, addresses_of, is_vouched, system_resolver, target

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
def translated(host: str, deadline: float = float("inf")) -> Generator[None]:
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
    except tuple(_FAILURES) as exc:
        kind, words = next(row for failure, row in _FAILURES.items() if isinstance(exc, failure))
        raise Fault(kind, words.format(host)) from exc
    if scope.cancelled_caught:
        raise Fault(Kind.TIMEOUT, f"{host} did not answer in time.")


MAX_BYTES: Final = 8 * 1024 * 1024

_ATTEMPTS: Final = 4


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
    pinned = PinnedTransport(allow_private, resolver or system_resolver, below)  # pyright: ignore[reportArgumentType]
    pool = httpcore.AsyncConnectionPool(
        ssl_context=verify or _authorities(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        max_connections=16,
        max_keepalive_connections=4,
        keepalive_expiry=15.0,
        network_backend=pinned,
    )
    return _Client(
        allow_private,
        transport=GuardedTransport(pool, allow_private, max_bytes, timeout),
        timeout=timeout,
        trust_env=False,
        headers={"User-Agent": "gatehouse", "Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )


@lru_cache(maxsize=4)
def _authorities(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Shared by all clients: to read all authorities takes longer than whatever else a client needs."""
    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True)
class PinnedTransport(httpcore.AsyncNetworkBackend):
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
        found = await addresses_of(host, port, is_vouched(host, self.allow_private), self.resolver)
        *others, last = found[:_ATTEMPTS]
        share = None if timeout is None else timeout / (len(others) + 1)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self.network.connect_tcp(address, port, share, local_address, socket_options)
        return await self.network.connect_tcp(last, port, share, local_address, socket_options)


@dataclass(frozen=True, slots=True)
class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends only to targets that may be reached, and lets in only answers that are plain, short and quick."""

    pool: httpcore.AsyncConnectionPool
    allow_private: Vouched
    max_bytes: int
    seconds: float

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = anyio.current_time() + self.seconds
        there = target(str(request.url), allow_private=self.allow_private)
        with translated(there.host, deadline):
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
        with translated(self.host, self.deadline):
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
        with translated(request.url.raw_host.decode("ascii")):
            return await super().send(request, **options)


def _outgoing(request: httpx.Request, there: OutboundTarget) -> httpcore.Request:
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
