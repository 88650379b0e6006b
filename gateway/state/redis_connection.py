"""The one place that knows Redis: a client for commands, and one connection on which everything heard arrives.

Both come back by themselves after a break. Valkey is the same to us.
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

_CONNECTIONS: Final = 32
_COMMAND: Final = 2.0
_PING: Final = 2.0
_SILENCE: Final = 6.0
_BACK_OFF: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
FAILURES: Final = (RedisError, OSError, TimeoutError)

log = logging.getLogger("gatehouse.bus")


class RedisConnection:
    """Commands, each tried again over a new connection when the first one broke."""

    def __init__(self, url: str) -> None:
        self._pool: Any = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            max_connections=_CONNECTIONS,
            timeout=_COMMAND,
            socket_timeout=_COMMAND,
            socket_connect_timeout=_COMMAND,
            socket_keepalive=not url.startswith("unix"),
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 3, supported_errors=(RedisConnectionError,)),
        )
        self._pool.connection_class = _minding_the_loop(self._pool.connection_class)
        self._client: Any = Redis(connection_pool=self._pool)
        self._scripts: dict[str, Callable[..., Awaitable[Any]]] = {}
        self._url = url
        self.ears = RedisSubscriptions(url)

    async def open(self) -> None:
        """Raises `Away` when nobody answers."""
        try:
            await self._client.ping()
        except FAILURES as exc:
            raise Unreachable("bus.url", self._url, "The bus cannot be reached. Try again.", exc) from exc
        self.ears.start()

    async def publish(self, channel: str, message: bytes) -> int:
        """To how many connections it went."""
        try:
            return await self._client.publish(channel, message)
        except FAILURES as exc:
            raise unreachable() from exc

    async def run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        """One script of ours, whole or not at all. Raises what redis raises."""
        registered = self._scripts.get(script)
        if registered is None:
            registered = self._scripts[script] = self._client.register_script(script)
        return await registered(keys=keys, args=values)

    async def close(self) -> None:
        await self.ears.close()
        await self._client.aclose()
        await self._pool.disconnect()


def _minding_the_loop(connection: type[Any]) -> type[Any]:
    """uvloop says of a connection that was reset meanwhile that it is closed, in words that redis does not take for a
    failure: then it is neither dropped nor made anew."""

    class Minding(connection):
        async def send_packed_command(self, *args: Any, **more: Any) -> None:
            try:
                await super().send_packed_command(*args, **more)  # pyright: ignore[reportUnknownMemberType]
            except RuntimeError as exc:
                await self.disconnect(nowait=True)
                raise RedisConnectionError("the connection is closed") from exc

    return Minding


Heard = Callable[[bytes], None]


class RedisSubscriptions:
    """Channels listened to on one connection, whoever listens, and for as long as somebody does."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, socket_connect_timeout=_COMMAND, socket_timeout=None, retry=Retry(NoBackoff(), 0)
        )
        self._listeners: dict[str, set[Heard]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._pubsub: Any = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="bus")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    @asynccontextmanager
    async def listening(self, channel: str, heard: Heard) -> AsyncGenerator[None, None]:
        """Hears everything sent to the channel from now on, but for what is sent while the connection is down."""
        first = channel not in self._listeners
        self._listeners.setdefault(channel, set()).add(heard)
        confirmed = self._confirmed.setdefault(channel, asyncio.Event())
        try:
            if first:
                await self._say("subscribe", channel)
            # A server that is away is waited for here no longer than a command would be.
            with suppress(TimeoutError):
                await asyncio.wait_for(confirmed.wait(), _COMMAND)
            yield
        finally:
            listeners = self._listeners[channel]
            listeners.discard(heard)
            if not listeners:
                del self._listeners[channel]
                del self._confirmed[channel]
                await asyncio.shield(self._say("unsubscribe", channel))

    async def _say(self, word: str, channel: str) -> None:
        async with self._writing:
            if self._pubsub is None or (word == "unsubscribe" and channel in self._listeners):
                return  # said to the next connection, or wanted again meanwhile
            try:
                await getattr(self._pubsub, word)(channel)
            except FAILURES:
                self._pubsub = None  # the reader will notice as well, and begin anew

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                async with self._client.pubsub() as pubsub:
                    await self._begin(pubsub)
                    tries = 0
                    await self._read(pubsub)
            except FAILURES as exc:
                log.log(logging.WARNING if tries == 0 else logging.DEBUG, "the bus is lost: %s", type(exc).__name__)
            finally:
                self._pubsub = None
                for confirmed in self._confirmed.values():
                    confirmed.clear()
            await asyncio.sleep(_BACK_OFF[min(tries, len(_BACK_OFF) - 1)])
            tries += 1

    async def _begin(self, pubsub: Any) -> None:
        async with self._writing:
            # One that nobody ever publishes to: a connection without any subscription cannot be read.
            await pubsub.subscribe("gatehouse:-", *self._listeners)
            self._pubsub = pubsub

    async def _read(self, pubsub: Any) -> None:
        last = time.monotonic()
        while self._pubsub is pubsub:
            message = await pubsub.get_message(timeout=_PING)
            if message is None:
                if time.monotonic() - last > _SILENCE:
                    raise TimeoutError
                await pubsub.ping()
                continue
            last = time.monotonic()
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        kind, channel = message["type"], message["channel"]
        if kind == "pong" or channel is None:
            return
        channel = channel.decode() if isinstance(channel, bytes) else channel
        if kind == "subscribe":
            if channel in self._confirmed:
                self._confirmed[channel].set()
        elif kind == "message":
            for heard in tuple(self._listeners.get(channel, ())):
                try:
                    heard(message["data"])
                except Exception:  # one listener's defect must not deafen the others
                    log.exception("what came over the bus could not be taken")


async def server_time(url: str) -> float:
    """What the clock of the server at that address says, asked once. Raises one of `FAILURES`."""
    client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url, socket_connect_timeout=_COMMAND, socket_timeout=_COMMAND, retry=Retry(NoBackoff(), 0)
    )
    try:
        seconds, microseconds = await client.time()
    finally:
        await client.aclose()
    return seconds + microseconds / 1e6


def unreachable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The bus cannot be reached. Try again.", retry_after=1.0)
