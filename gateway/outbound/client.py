"""The guarded HTTP client: pinned addresses, bounded responses, and HTTP errors translated to faults."""

import ssl
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import anyio
import httpcore
import httpx

from gateway.errors import Fault, Kind
from gateway.outbound.route import DIRECT, OutboundRoute, check_proxied_host, open_tunnel_stream
from gateway.outbound.target import (
    OutboundTarget,
    Resolver,
    TrustedHosts,
    is_trusted,
    parse_target,
    resolve_host,
    system_resolver,
)

# The httpx exceptions come from respx in tests. The last two are raised by httpx for a Location header that it cannot
# parse.
_FAILURES: Final[Mapping[type[Exception], tuple[Kind, str]]] = {
    httpcore.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpx.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpcore.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpx.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpcore.LocalProtocolError: (Kind.INTERNAL, "The request to {} is not valid HTTP."),
    httpcore.RemoteProtocolError: (Kind.UNAVAILABLE, "{} sent an invalid HTTP response."),
    httpx.RemoteProtocolError: (Kind.UNAVAILABLE, "{} sent an invalid HTTP response."),
    httpx.InvalidURL: (Kind.UNAVAILABLE, "{} redirects to an invalid URL."),
    UnicodeError: (Kind.UNAVAILABLE, "{} redirects to an invalid URL."),
}


@contextmanager
def translate_errors(host: str, deadline: float = float("inf")) -> Generator[None]:
    """Translate HTTP errors to faults, and enforce a deadline on the event loop's clock."""
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
    except tuple(_FAILURES) as exc:
        kind, template = next(row for failure, row in _FAILURES.items() if isinstance(exc, failure))
        raise Fault(kind, template.format(host)) from exc
    if scope.cancelled_caught:
        raise Fault(Kind.TIMEOUT, f"{host} did not answer in time.")


MAX_BYTES: Final = 8 * 1024 * 1024
_ATTEMPTS: Final = 4


def create_client(
    *,
    allow_private: TrustedHosts = frozenset(),
    max_bytes: int = MAX_BYTES,
    timeout: float = 10.0,
    resolver: Resolver | None = None,
    verify: ssl.SSLContext | None = None,
    network: httpcore.AsyncNetworkBackend | None = None,
    route: OutboundRoute = DIRECT,
) -> httpx.AsyncClient:
    """Create a guarded client. It raises `Fault` for every rejected or failed request.

    It follows no redirects and stores no cookies. `timeout` limits the complete request, up to the last byte of the
    response. `verify` defaults to the certificate authorities of `route`: certifi, or SSL_CERT_FILE and SSL_CERT_DIR,
    and those of the settings.
    """
    # httpcore declares a second, empty AnyIOBackend for installations without anyio.
    backend = network or httpcore.AnyIOBackend()
    pinned = PinnedTransport(allow_private, resolver or system_resolver, backend, route)  # pyright: ignore[reportArgumentType]
    pool = httpcore.AsyncConnectionPool(
        ssl_context=verify or route.tls(),
        max_connections=16,
        max_keepalive_connections=4,
        keepalive_expiry=15.0,
        network_backend=pinned,
    )
    return _GuardedClient(
        allow_private,
        transport=GuardedTransport(pool, allow_private, max_bytes, timeout),
        timeout=timeout,
        trust_env=False,
        headers={"User-Agent": "gatehouse", "Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )


@dataclass(frozen=True, slots=True)
class PinnedTransport(httpcore.AsyncNetworkBackend):
    """Connects to validated addresses only. TLS verification and the Host header still use the host name."""

    allow_private: TrustedHosts
    resolver: Resolver
    network: httpcore.AsyncNetworkBackend
    route: OutboundRoute = DIRECT

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        trusted = is_trusted(host, self.allow_private)
        if (proxy := self.route.proxy_for(host)) is not None:
            await check_proxied_host(host, port, trusted, self.resolver)
            return await open_tunnel_stream(self.network, proxy, host, port, timeout)
        addresses = await resolve_host(host, port, trusted, self.resolver)
        *alternatives, last = addresses[:_ATTEMPTS]
        share = None if timeout is None else timeout / (len(alternatives) + 1)
        for address in alternatives:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self.network.connect_tcp(address, port, share, local_address, socket_options)
        return await self.network.connect_tcp(last, port, share, local_address, socket_options)


@dataclass(frozen=True, slots=True)
class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends requests to permitted targets only. Rejects responses that are compressed, too large or too slow."""

    pool: httpcore.AsyncConnectionPool
    allow_private: TrustedHosts
    max_bytes: int
    seconds: float

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = anyio.current_time() + self.seconds
        target = parse_target(str(request.url), allow_private=self.allow_private)
        with translate_errors(target.host, deadline):
            received = await self.pool.handle_async_request(_build_request(request, target))
        body = _BoundedBody(received, target.host, self.max_bytes, deadline)
        response = httpx.Response(received.status, headers=received.headers, stream=body)
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            await body.aclose()
            raise Fault(Kind.DENIED, f"{target.host} sent a compressed response, which is not accepted.")
        return response

    async def aclose(self) -> None:
        await self.pool.aclose()


@dataclass(frozen=True, slots=True)
class _BoundedBody(httpx.AsyncByteStream):
    response: httpcore.Response
    host: str
    max_bytes: int
    deadline: float

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        chunks = self.response.aiter_stream()
        while (chunk := await self._next(chunks)) is not None:
            size += len(chunk)
            if size > self.max_bytes:
                message = f"{self.host} sent more than {self.max_bytes} bytes."
                raise Fault(Kind.TOO_LARGE, message, details={"max_bytes": self.max_bytes})
            yield chunk

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        with translate_errors(self.host, self.deadline):
            return await anext(chunks, None)

    async def aclose(self) -> None:
        await self.response.aclose()


class _GuardedClient(httpx.AsyncClient):
    """Validates the URL as supplied, before httpx normalizes it."""

    def __init__(self, allow_private: TrustedHosts, **options: Any) -> None:
        super().__init__(**options)
        self._allow_private = allow_private

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        parse_target(str(url), allow_private=self._allow_private)
        return super().build_request(method, url, **options)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        options["follow_redirects"] = False
        with translate_errors(request.url.raw_host.decode("ascii")):
            return await super().send(request, **options)


def _build_request(request: httpx.Request, target: OutboundTarget) -> httpcore.Request:
    assert isinstance(request.stream, httpx.AsyncByteStream)
    request.headers["Host"] = request.url.netloc.decode("ascii")
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
        headers=request.headers.raw,
        content=request.stream,
        # No other extensions: they could set a TLS host or request target that was not validated.
        extensions={"timeout": request.extensions.get("timeout", {})},
    )
