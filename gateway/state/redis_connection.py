"""Redis connections: a client for commands, and one connection for all subscriptions.

Both reconnect automatically. Valkey is supported in the same way. The bus and the shared rate limits use this module.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from gateway.errors import Fault, Kind
from gateway.state.unreachable import Unreachable

_MAX_CONNECTIONS: Final = 32
_COMMAND_TIMEOUT: Final = 2.0
_PING_INTERVAL: Final = 2.0
_SILENCE_TIMEOUT: Final = 6.0
_BACKOFF_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
FAILURES: Final = (RedisError, OSError, TimeoutError)

log = logging.getLogger("gatehouse.bus")


class RedisConnection:
    """Runs commands. A command whose connection is lost is retried on a new connection."""

    def __init__(self, url: str) -> None:
        self._pool: Any = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=_COMMAND_TIMEOUT,
            socket_timeout=_COMMAND_TIMEOUT,
            socket_connect_timeout=_COMMAND_TIMEOUT,
            socket_keepalive=not url.startswith("unix"),
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 3, supported_errors=(RedisConnectionError,)),
        )
        self._pool.connection_class = _with_closed_transport_check(self._pool.connection_class)
        self._client: Any = Redis(connection_pool=self._pool)
        self._scripts: dict[str, Callable[..., Awaitable[Any]]] = {}
        self._url = url
        self.subscriptions = RedisSubscriptions(url)

    async def open(self) -> None:
        """Check the server and start the subscriptions. Raises `Unreachable` when the server does not answer."""
        try:
            await self._client.ping()
        except FAILURES as exc:
            raise Unreachable("bus.url", self._url, "The bus cannot be reached. Try again.", exc) from exc
        self.subscriptions.start()

    async def publish(self, channel: str, message: bytes) -> int:
        """Publish a message and return the number of connections that received it."""
        try:
            return await self._client.publish(channel, message)
        except FAILURES as exc:
            raise bus_unavailable() from exc

    async def run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        """Run a Lua script atomically. Raises the exceptions of the Redis client."""
        registered = self._scripts.get(script)
        if registered is None:
            registered = self._scripts[script] = self._client.register_script(script)
        return await registered(keys=keys, args=values)

    async def close(self) -> None:
        await self.subscriptions.close()
        await self._client.aclose()
        await self._pool.disconnect()


def _with_closed_transport_check(connection: type[Any]) -> type[Any]:
    """Return a connection class that reports a closed transport as a Redis connection error.

    uvloop raises `RuntimeError` for it. The Redis client does not treat that as a connection failure, so it would
    neither drop the connection nor reconnect.
    """

    class CheckedConnection(connection):
        async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
            try:
                await super().send_packed_command(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]
            except RuntimeError as exc:
                await self.disconnect(nowait=True)
                raise RedisConnectionError("connection closed") from exc

    return CheckedConnection


MessageListener = Callable[[bytes], None]


class RedisSubscriptions:
    """All channel subscriptions of this process, on one connection. A channel is dropped with its last listener."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, socket_connect_timeout=_COMMAND_TIMEOUT, socket_timeout=None, retry=Retry(NoBackoff(), 0)
        )
        self._listeners: dict[str, set[MessageListener]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._pubsub: Any = None
        self._write_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="bus")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    @asynccontextmanager
    async def subscribe(self, channel: str, listener: MessageListener) -> AsyncGenerator[None, None]:
        """Call `listener` with each message published from now on. Messages sent while disconnected are lost."""
        first = channel not in self._listeners
        self._listeners.setdefault(channel, set()).add(listener)
        confirmed = self._confirmed.setdefault(channel, asyncio.Event())
        try:
            if first:
                await self._send("subscribe", channel)
            # Waits for an unreachable server no longer than a command would.
            with suppress(TimeoutError):
                await asyncio.wait_for(confirmed.wait(), _COMMAND_TIMEOUT)
            yield
        finally:
            listeners = self._listeners[channel]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[channel]
                del self._confirmed[channel]
                await asyncio.shield(self._send("unsubscribe", channel))

    async def _send(self, command: str, channel: str) -> None:
        async with self._write_lock:
            if self._pubsub is None or (command == "unsubscribe" and channel in self._listeners):
                return  # the next connection subscribes, or a new listener has come
            try:
                await getattr(self._pubsub, command)(channel)
            except FAILURES:
                self._pubsub = None  # the reader notices and reconnects

    async def _run(self) -> None:
        attempts = 0
        while True:
            try:
                async with self._client.pubsub() as pubsub:
                    await self._resubscribe(pubsub)
                    attempts = 0
                    await self._read(pubsub)
            except FAILURES as exc:
                log.log(
                    logging.WARNING if attempts == 0 else logging.DEBUG,
                    "bus: connection lost (%s); reconnecting",
                    type(exc).__name__,
                )
            finally:
                self._pubsub = None
                for confirmed in self._confirmed.values():
                    confirmed.clear()
            await asyncio.sleep(_BACKOFF_SECONDS[min(attempts, len(_BACKOFF_SECONDS) - 1)])
            attempts += 1

    async def _resubscribe(self, pubsub: Any) -> None:
        async with self._write_lock:
            # Subscribe to an unused channel too: a connection without a subscription cannot be read.
            await pubsub.subscribe("gatehouse:-", *self._listeners)
            self._pubsub = pubsub

    async def _read(self, pubsub: Any) -> None:
        last = time.monotonic()
        while self._pubsub is pubsub:
            message = await pubsub.get_message(timeout=_PING_INTERVAL)
            if message is None:
                if time.monotonic() - last > _SILENCE_TIMEOUT:
                    raise TimeoutError
                await pubsub.ping()
                continue
            last = time.monotonic()
            self._dispatch(message)

    def _dispatch(self, message: dict[str, Any]) -> None:
        kind, channel = message["type"], message["channel"]
        if kind == "pong" or channel is None:
            return
        channel = channel.decode() if isinstance(channel, bytes) else channel
        if kind == "subscribe":
            if channel in self._confirmed:
                self._confirmed[channel].set()
        elif kind == "message":
            for listener in tuple(self._listeners.get(channel, ())):
                try:
                    listener(message["data"])
                except Exception:  # a failing listener must not affect the others
                    log.exception("bus: a listener failed on a message; the message is skipped for this listener")


async def server_time(url: str) -> float:
    """Return the time of the Redis server's clock. Raises one of `FAILURES`."""
    client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url, socket_connect_timeout=_COMMAND_TIMEOUT, socket_timeout=_COMMAND_TIMEOUT, retry=Retry(NoBackoff(), 0)
    )
    try:
        seconds, microseconds = await client.time()
    finally:
        await client.aclose()
    return seconds + microseconds / 1e6


def bus_unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The bus cannot be reached. Try again.", retry_after=1.0)
