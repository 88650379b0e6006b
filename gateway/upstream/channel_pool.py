"""Pool of JSON-RPC channels by owner: opened on first use, and again after they closed.

Used by the stdio transport (one channel per process) and the SSE transport (one per session).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.concurrency import StartLimiter
from gateway.upstream.jsonrpc_channel import JsonRpcChannel
from gateway.upstream.remote import Era

INITIAL_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 60.0
MAX_PER_OWNER: Final = 8
"""Maximum number of channels of one owner, for clients of different eras and capabilities."""

ChannelKey = tuple[Any, ...]
"""The owner comes first. The empty key is the channel that reads the lists; it is never evicted."""


@dataclass(frozen=True, slots=True)
class _StartFailure:
    """Consecutive times that a channel failed to start or closed before it answered a request."""

    count: int
    until: float


def _ignore_open(key: ChannelKey, channel: JsonRpcChannel) -> None:
    """Default of `on_open`."""


class ChannelPool:
    """Holds at most `limit` channels. Evicts the least recently used idle one, of the same owner first.

    `start_limiter` limits concurrent starts. A channel that keeps failing is restarted with exponential backoff, up to
    `MAX_BACKOFF_SECONDS`.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], JsonRpcChannel],
        limit: int,
        start_limiter: StartLimiter,
        on_open: Callable[[ChannelKey, JsonRpcChannel], None] = _ignore_open,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._make = make
        self._limit = limit
        self._start_limiter = start_limiter
        self._on_open = on_open
        self._clock = clock
        self._channels: OrderedDict[ChannelKey, JsonRpcChannel] = OrderedDict()
        self._starting: dict[ChannelKey, asyncio.Task[JsonRpcChannel]] = {}
        self._failures: OrderedDict[ChannelKey, _StartFailure] = OrderedDict()
        self._stopping: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._channels)

    async def get(self, key: ChannelKey, capabilities: Json, known_era: Era | None) -> JsonRpcChannel:
        """Return the open channel of that key. Raises `Fault(UNAVAILABLE)` when it fails to start or must back off."""
        channel = self._channels.get(key)
        if channel is not None and not channel.is_closed:
            self._channels.move_to_end(key)
            return channel
        starting = self._starting.get(key)
        if starting is None:
            if channel is not None:
                self._discard_closed(key, channel)
            self._check_start(key)
            starting = self._starting[key] = asyncio.create_task(self._start(key, capabilities, known_era))
            starting.add_done_callback(lambda _: self._starting.pop(key, None))
        # A cancelled caller does not cancel the start for the others.
        return await asyncio.shield(starting)

    def alive(self) -> list[tuple[ChannelKey, JsonRpcChannel]]:
        """Open channels, most recently used first."""
        return [(key, channel) for key, channel in reversed(self._channels.items()) if not channel.is_closed]

    async def close(self) -> None:
        self._closed = True
        for task in list(self._starting.values()):
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        channels = list(self._channels.values())
        self._channels.clear()
        await asyncio.gather(*(channel.stop() for channel in channels), *self._stopping)

    async def _start(self, key: ChannelKey, capabilities: Json, known_era: Era | None) -> JsonRpcChannel:
        try:
            async with self._start_limiter.slot():
                channel = await self._start_channel(capabilities, known_era)
        except (Fault, ForeignError):
            self._record_failure(key)
            raise
        self._channels[key] = channel
        self._on_open(key, channel)
        return channel

    async def _start_channel(self, capabilities: Json, known_era: Era | None) -> JsonRpcChannel:
        channel = self._make()
        try:
            await channel.start(capabilities, known_era)
        except Fault:
            if known_era is not None:
                raise
            # Some handshake-era servers exit at an unknown method: restart with the handshake only.
            channel = self._make()
            await channel.start(capabilities, "handshake")
        return channel

    # ---- limits and failures ----

    def _check_start(self, key: ChannelKey) -> None:
        failure = self._failures.get(key)
        if failure is not None and (remaining := failure.until - self._clock()) > 0:
            message = f"{self._name} keeps failing to start. Try again later."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=max(1.0, round(remaining, 1)))
        if self._closed or not self._make_room(key):
            message = f"{self._name} has reached its limit of sessions. Try again later."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=1.0)

    def _make_room(self, key: ChannelKey) -> bool:
        """Return whether one more channel may start; evicts an idle one if necessary."""
        same_owner = [each for each in (*self._channels, *self._starting) if key and each[:1] == key[:1]]
        if len(same_owner) < MAX_PER_OWNER and len(self._channels) + len(self._starting) < self._limit:
            return True
        others = self._channels if len(same_owner) < MAX_PER_OWNER else ()
        idle = next((each for each in (*same_owner, *others) if each and self._is_idle(each)), None)
        if idle is None:
            return False
        self._stop(self._channels.pop(idle))
        return True

    def _is_idle(self, key: ChannelKey) -> bool:
        channel = self._channels.get(key)
        return channel is not None and not channel.is_busy

    def _discard_closed(self, key: ChannelKey, channel: JsonRpcChannel) -> None:
        del self._channels[key]
        self._stop(channel)
        if channel.has_answered:
            self._failures.pop(key, None)
        else:
            self._record_failure(key)

    def _record_failure(self, key: ChannelKey) -> None:
        previous = self._failures.pop(key, None)
        count = previous.count + 1 if previous is not None else 1
        # No delay after the first failure, which may be a coincidence.
        backoff = min(INITIAL_BACKOFF_SECONDS * 2.0 ** (count - 2), MAX_BACKOFF_SECONDS) if count > 1 else 0.0
        self._failures[key] = _StartFailure(count, self._clock() + backoff)
        while len(self._failures) > 4 * self._limit:
            self._failures.popitem(last=False)

    def _stop(self, channel: JsonRpcChannel) -> None:
        self._spawn(channel.stop())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
