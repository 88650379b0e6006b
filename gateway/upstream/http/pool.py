"""The connections to one server: kept alive for a while, each judged before it is made."""

import asyncio
import socket
import ssl
from time import monotonic
from typing import Final

from gateway.errors import Fault, Kind
from gateway.outbound import OutboundTarget, Resolver, resolve
from gateway.upstream.http.connection import RequestNotRead, UpstreamConnection, UpstreamResponse

CONNECT_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 30.0
FRESH_SECONDS: Final = 0.005
_ATTEMPTS: Final = 4
_KEEPALIVE: Final = (  # a peer that vanished without a word is noticed within a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0), 30),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0), 10),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0), 3),
)


class ConnectionPool:
    """Gives each exchange a connection of its own; the last used goes first, so that idle ones age and are closed.

    How many there are is bounded by whoever asks: the bulkhead in front of it.
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
    ) -> None:
        self._name = name
        self._target = target
        self._max_bytes = max_bytes
        self._resolver = resolver
        self._tls = tls
        self._idle_seconds = idle_seconds
        self._idle: list[UpstreamConnection] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def exchange(self, request: bytes, safe: bool = False) -> "LeasedConnection":
        """The answer, which must be released.

        A kept connection that turns out to be closed is replaced once, if not a byte of an answer came, and either the
        request certainly did not leave or it is `safe` to send twice.
        """
        connection = self._take()
        if connection is not None:
            try:
                return LeasedConnection(self, connection, await connection.ask(request))
            except RequestNotRead as unread:
                if unread.sent and not safe:
                    raise self._broken() from unread
            except asyncio.CancelledError:
                connection.abort()
                raise
        connection = await self._connect()
        try:
            return LeasedConnection(self, connection, await connection.ask(request))
        except RequestNotRead as unread:
            raise self._broken() from unread
        except asyncio.CancelledError:
            connection.abort()
            raise

    def put_back(self, connection: UpstreamConnection) -> None:
        if not connection.open:
            return
        if self._closed or not connection.reusable:
            connection.abort()  # a server that says it will close may well forget to
            return
        connection.idle_since = monotonic()
        connection.uses += 1
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _take(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open and (_in_use(connection) or not connection.stale()):
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        """Close what nobody needed for a while. The oldest stand first."""
        due = monotonic() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= due:
            self._idle.pop(0).abort()
        self._sweeping = None
        if self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    async def _connect(self) -> UpstreamConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = (await resolve(self._target, self._resolver))[:_ATTEMPTS]
                for place, address in enumerate(addresses):
                    try:
                        return await self._connect_to(address, len(addresses) - place)
                    except (OSError, TimeoutError):
                        if place == len(addresses) - 1:
                            raise
        except (OSError, TimeoutError) as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} cannot be reached.") from exc
        raise AssertionError

    async def _connect_to(self, address: str, share: int) -> UpstreamConnection:
        target, loop = self._target, asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS / share):
            transport, connection = await loop.create_connection(
                lambda: UpstreamConnection(self._name, self._max_bytes),
                address,
                target.port,
                ssl=self._tls,
                server_hostname=target.host if self._tls else None,
            )
        for level, option, value in _KEEPALIVE:
            if option:
                transport.get_extra_info("socket").setsockopt(level, option, value)
        return connection

    def _broken(self) -> Fault:
        return Fault(Kind.UNAVAILABLE, f"{self._name} closed the connection without an answer.")


def _in_use(connection: UpstreamConnection) -> bool:
    """Whether it need not be looked at, which takes a system call: it served a moment ago, and not for the first time,
    so that its server does not close after each answer."""
    return connection.uses > 1 and monotonic() - connection.idle_since < FRESH_SECONDS


class LeasedConnection:
    """An answer and the connection it came by."""

    __slots__ = ("_connection", "_pool", "response")

    def __init__(self, pool: ConnectionPool, connection: UpstreamConnection, response: UpstreamResponse) -> None:
        self._pool = pool
        self._connection = connection
        self.response = response

    def release(self) -> None:
        self.response.close()
        self._pool.put_back(self._connection)
