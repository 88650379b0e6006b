"""`open_bus`, and the in-process bus. Queues and leases in memory are bounded and expire.

`gateway.wiring.storage` opens the bus. Several worker processes need `RedisBus`, which loads only with a Redis URL.
"""

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gateway.contract import Json, Lease
from gateway.state.bus_delivery import MAX_QUEUE_LENGTH, BusSubscriber, capacity_exceeded, run_handler

if TYPE_CHECKING:
    from gateway.state.redis_bus import RedisBus

_MAX_QUEUES: Final = 4096
_MAX_LEASES: Final = 100_000
_SWEEP_INTERVAL: Final = 30.0
_FENCES: Final = itertools.count(1)


async def open_bus(url: str | None, prefix: str) -> "MemoryBus | RedisBus":
    """Open the Redis bus at `url`, or an in-process bus without one.

    The Redis client library is an optional extra: it is imported only when a URL is set.
    """
    if url is None:
        return MemoryBus()
    from gateway.state.redis_bus import RedisBus

    return await RedisBus.open(url, prefix)


class MemoryBus:
    """`gateway.contract.Bus` for one process."""

    def __init__(self, worker: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker or secrets.token_hex(4)
        self._clock = clock
        self._subscribers: dict[str, set[BusSubscriber]] = {}
        self._handlers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self._queues: dict[str, _Queue] = {}
        self._leases: dict[str, tuple[_MemoryLease, float]] = {}
        self._next_sweep = clock() + _SWEEP_INTERVAL

    @property
    def worker(self) -> str:
        return self._worker

    async def close(self) -> None:
        """Do nothing: only memory is held."""

    async def publish(self, topic: str, message: Json) -> None:
        for subscriber in self._subscribers.get(topic, ()):
            subscriber.put(message)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[Json], None]:
        """Yield the messages published from now on. A subscriber that is 1000 messages behind loses the oldest."""
        subscriber = BusSubscriber()
        self._subscribers.setdefault(topic, set()).add(subscriber)
        try:
            yield subscriber
        finally:
            subscribers = self._subscribers[topic]
            subscribers.discard(subscriber)
            if not subscribers:
                del self._subscribers[topic]

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        return await run_handler(self._handlers.get(topic) if worker == self._worker else None, message, timeout)

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None:
        self._handlers[topic] = handler

    async def push(self, queue: str, message: Json, ttl: float) -> None:
        """Raises `Fault(UNAVAILABLE)` when the queue, or the number of queues, is at its limit."""
        now = self._sweep()
        if queue not in self._queues and len(self._queues) >= _MAX_QUEUES:
            raise capacity_exceeded("Too many queues hold messages.")
        self._queues.setdefault(queue, _Queue()).put(message, now, now + ttl)

    async def pop(self, queue: str, timeout: float) -> Json | None:
        waiting = self._queues.setdefault(queue, _Queue())
        waiting.poppers += 1
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await waiting.get(self._clock)
        except TimeoutError:
            return None
        finally:
            waiting.poppers -= 1
            if waiting.is_idle and self._queues.get(queue) is waiting:
                del self._queues[queue]

    async def lease(self, key: str, ttl: float) -> Lease | None:
        now = self._sweep()
        held = self._leases.get(key)
        if held is not None and held[1] > now:
            return None
        if held is None and len(self._leases) >= _MAX_LEASES:
            raise capacity_exceeded("Too many leases are held.")
        lease = _MemoryLease(self._leases, key, ttl, self._clock)
        self._leases[key] = (lease, now + ttl)
        return lease

    def _sweep(self) -> float:
        """Return the current time, after dropping expired leases and idle queues if a sweep is due."""
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_INTERVAL
            for key in [key for key, (_, expires) in self._leases.items() if expires <= now]:
                del self._leases[key]
            for queue in self._queues.values():
                queue.drop_expired(now)
            for name in [name for name, queue in self._queues.items() if queue.is_idle]:
                del self._queues[name]
        return now


class _Queue:
    """Messages in order of arrival, each with its expiry time."""

    def __init__(self) -> None:
        self.poppers = 0
        self._messages: deque[tuple[float, Json]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._messages and not self.poppers

    def put(self, message: Json, now: float, expires: float) -> None:
        if len(self._messages) >= MAX_QUEUE_LENGTH:
            self.drop_expired(now)
        if len(self._messages) >= MAX_QUEUE_LENGTH:
            raise capacity_exceeded("The queue is full.")
        self._messages.append((expires, message))
        self._wake_one()

    async def get(self, clock: Callable[[], float]) -> Json:
        while (message := self._take(clock())) is None:
            wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(wakeup)
            try:
                await wakeup
            except asyncio.CancelledError:
                if not wakeup.cancelled():  # woken and cancelled at once: pass the message on
                    self._wake_one()
                raise
            finally:
                if wakeup in self._waiting:
                    self._waiting.remove(wakeup)
        return message

    def drop_expired(self, now: float) -> None:
        self._messages = deque(row for row in self._messages if row[0] > now)

    def _take(self, now: float) -> Json | None:
        while self._messages:
            expires, message = self._messages.popleft()
            if expires > now:
                return message
        return None

    def _wake_one(self) -> None:
        while self._waiting:
            wakeup = self._waiting.popleft()
            if not wakeup.done():
                wakeup.set_result(None)
                return


class _MemoryLease:
    def __init__(
        self, leases: "dict[str, tuple[_MemoryLease, float]]", key: str, ttl: float, clock: Callable[[], float]
    ) -> None:
        self._leases = leases
        self._key = key
        self._ttl = ttl
        self._clock = clock
        self.fence = next(_FENCES)

    async def renew(self) -> bool:
        now = self._clock()
        if not self._is_held(now):
            return False
        self._leases[self._key] = (self, now + self._ttl)
        return True

    async def release(self) -> None:
        if self._is_held(self._clock()):
            del self._leases[self._key]

    def _is_held(self, now: float) -> bool:
        holder, expires = self._leases.get(self._key, (None, 0.0))
        return holder is self and expires > now
