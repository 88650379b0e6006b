"""Pool of keep-alive connections to one server; each address is checked before the gateway connects to it."""

import asyncio
import socket
import ssl
from contextvars import ContextVar
from time import monotonic
from typing import Final
from weakref import WeakSet

from gateway.errors import Fault, Kind
from gateway.outbound import DIRECT, OutboundRoute, OutboundTarget, Proxy, Resolver, resolve, system_resolver
from gateway.outbound.route import check_proxied_host, open_tunnel_socket
from gateway.upstream.breaker import ConnectionFailed
from gateway.upstream.http.connection import NoResponse, UpstreamConnection, UpstreamResponse

CONNECT_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 30.0
FRESH_SECONDS: Final = 0.005
_MAX_ADDRESSES: Final = 4
_KEEPALIVE: Final = (  # detects a vanished peer within a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0), 30),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0), 10),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0), 3),
)


COMPARED: Final[ContextVar[bool]] = ContextVar("definitions_compared", default=False)
"""Whether the definitions of the server were compared on behalf of the current call."""


class ServerReconnected(Fault):
    """No connection was left, so another server may answer now. The request was not sent."""

    def __init__(self, name: str) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} was reconnected. Try again.")


class ConnectionPool:
    """Gives each exchange its own connection, most recently used first, so that surplus ones expire.

    The pool has no limit of its own: the bulkhead in front of it limits concurrent exchanges.
    """

    def __init__(
        self,
        name: str,
        target: OutboundTarget,
        *,
        max_bytes: int,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = IDLE_SECONDS,
        route: OutboundRoute = DIRECT,
    ) -> None:
        self.name = name
        self._target = target
        self._max_bytes = max_bytes
        self._resolver = resolver
        self._tls = tls
        self._idle_seconds = idle_seconds
        self._proxy = route.proxy_for(target.host)
        self._idle: list[UpstreamConnection] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._connections: WeakSet[UpstreamConnection] = WeakSet()
        self.guarded = False
        """Whether a request that is not idempotent requires `COMPARED` if it would be the first of a new `epoch`."""
        self.epoch = 0
        """How often a connection was opened while there was no other."""

    @property
    def has_open(self) -> bool:
        """Whether any connection is open, idle or in use."""
        return any(connection.is_open for connection in self._connections)

    async def exchange(self, request: bytes, idempotent: bool = False) -> "LeasedConnection":
        """Send a request. The returned lease must be released.

        Retries once on a new connection if an idle connection turns out to be closed before the first response byte,
        and the request was certainly not read or is `idempotent`.
        """
        connection = self._take()
        if connection is not None:
            try:
                return LeasedConnection(self, connection, await connection.send(request))
            except NoResponse as error:
                if error.maybe_read and not idempotent:
                    raise self._no_response_fault() from error
            except asyncio.CancelledError:
                connection.abort()
                raise
        if self.guarded and not idempotent and not self.has_open and not COMPARED.get():
            raise ServerReconnected(self.name)
        connection = await self._connect()
        try:
            return LeasedConnection(self, connection, await connection.send(request))
        except NoResponse as error:
            raise self._no_response_fault() from error
        except asyncio.CancelledError:
            connection.abort()
            raise

    def put_back(self, connection: UpstreamConnection) -> None:
        if not connection.is_open:
            return
        if self._closed or not connection.is_reusable:
            connection.abort()  # a server that announced the close may not perform it
            return
        connection.idle_since = monotonic()
        connection.uses += 1
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _take(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and (_is_fresh(connection) or not connection.is_stale()):
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        """Close connections that were idle for `idle_seconds`. The oldest come first."""
        cutoff = monotonic() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= cutoff:
            self._idle.pop(0).abort()
        self._sweep_timer = None
        if self._idle:
            self._sweep_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    async def _connect(self) -> UpstreamConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._proxy is not None:
                    return await self._connect_through(self._proxy)
                addresses = (await resolve(self._target, self._resolver))[:_MAX_ADDRESSES]
                for index, address in enumerate(addresses):
                    try:
                        return self._count(await self._connect_to(address, len(addresses) - index))
                    except (OSError, TimeoutError):
                        if index == len(addresses) - 1:
                            raise
        except (OSError, TimeoutError) as exc:
            raise ConnectionFailed(f"{self.name} cannot be reached.") from exc
        raise AssertionError

    async def _connect_through(self, proxy: Proxy) -> UpstreamConnection:
        target, loop = self._target, asyncio.get_running_loop()
        await check_proxied_host(target.host, target.port, target.is_trusted, self._resolver or system_resolver)
        _, connection = await loop.create_connection(
            lambda: UpstreamConnection(self.name, self._max_bytes),
            sock=await open_tunnel_socket(proxy, target.host, target.port),
            ssl=self._tls,
            server_hostname=target.host if self._tls else None,
        )
        return self._count(connection)

    def _count(self, connection: UpstreamConnection) -> UpstreamConnection:
        if not self.has_open:
            self.epoch += 1
        self._connections.add(connection)
        return connection

    async def _connect_to(self, address: str, attempts_left: int) -> UpstreamConnection:
        target, loop = self._target, asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS / attempts_left):
            transport, connection = await loop.create_connection(
                lambda: UpstreamConnection(self.name, self._max_bytes),
                address,
                target.port,
                ssl=self._tls,
                server_hostname=target.host if self._tls else None,
            )
        for level, option, value in _KEEPALIVE:
            if option:
                transport.get_extra_info("socket").setsockopt(level, option, value)
        return connection

    def _no_response_fault(self) -> Fault:
        return ConnectionFailed(f"{self.name} closed the connection without a response.")


def _is_fresh(connection: UpstreamConnection) -> bool:
    """Whether the system call of `is_stale` can be skipped: used a moment ago, and more than once, so that the server
    does not close it after each response."""
    return connection.uses > 1 and monotonic() - connection.idle_since < FRESH_SECONDS


class LeasedConnection:
    """A response and its connection. `release` returns the connection to the pool."""

    __slots__ = ("_connection", "_pool", "response")

    def __init__(self, pool: ConnectionPool, connection: UpstreamConnection, response: UpstreamResponse) -> None:
        self._pool = pool
        self._connection = connection
        self.response = response

    def release(self) -> None:
        self.response.close()
        self._pool.put_back(self._connection)
