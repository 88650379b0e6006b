"""The connections to one server: kept alive, bounded in number, each judged before it is made."""

import asyncio
import ssl
from collections import deque
from typing import Final

from gateway.errors import Fault, Kind
from gateway.outbound import Resolver, Target, resolve
from gateway.upstream.http.connection import Connection, Response, Unread

CONNECT_SECONDS: Final = 5.0


class Pool:
    """Gives each exchange a connection of its own; the last used goes first, so that idle ones age."""

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        max_connections: int,
        max_waiting: int,
        max_bytes: int,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name = name
        self._target = target
        self._max_bytes = max_bytes
        self._resolver = resolver
        self._tls = tls
        self._idle: list[Connection] = []
        self._free = max_connections
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def exchange(self, request: bytes) -> "Leased":
        """The answer, which must be released. A connection found closed is replaced once, never after a byte came."""
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait_for_room()
        try:
            kept = self._take()
            connection = kept or await self._connect()
            try:
                response = await connection.exchange(request)
            except Unread as exc:
                if kept is None:
                    raise self._broken() from exc
                connection = await self._connect()
                response = await self._again(connection, request)
        except BaseException:
            self._leave()
            raise
        return Leased(self, connection, response)

    def put_back(self, connection: Connection) -> None:
        if connection.reusable and connection.open:
            self._idle.append(connection)
        self._leave()

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def _again(self, connection: Connection, request: bytes) -> Response:
        try:
            return await connection.exchange(request)
        except Unread as exc:
            raise self._broken() from exc

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self) -> Connection:
        target, loop = self._target, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await resolve(target, self._resolver)
                _, connection = await loop.create_connection(
                    lambda: Connection(self._name, self._max_bytes),
                    addresses[0],
                    target.port,
                    ssl=self._tls,
                    server_hostname=target.host if self._tls else None,
                )
        except (OSError, TimeoutError) as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} cannot be reached.") from exc
        return connection

    async def _wait_for_room(self) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} is busy: too many calls wait for it.", retry_after=1.0)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        """Hand the place over to whoever has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _broken(self) -> Fault:
        return Fault(Kind.UNAVAILABLE, f"{self._name} closed the connection without an answer.")


class Leased:
    """An answer and the connection it came by."""

    __slots__ = ("_connection", "_pool", "response")

    def __init__(self, pool: Pool, connection: Connection, response: Response) -> None:
        self._pool = pool
        self._connection = connection
        self.response = response

    def release(self) -> None:
        self.response.close()
        self._pool.put_back(self._connection)
