"""The bus of a single process. Everything it keeps is bounded and forgotten when its time is over."""

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gateway.contract import Json, Lease
from gateway.errors import Fault, Kind

if TYPE_CHECKING:
    from gateway.state.redis_bus import RedisBus

_BUFFER: Final = 1000
MAX_QUEUE: Final = 256
_QUEUES: Final = 4096
_LEASES: Final = 100_000
_SWEEP_EVERY: Final = 30.0
_FENCES: Final = itertools.count(1)


class MemoryBus:
    """`gateway.contract.Bus` for one process."""

    def __init__(self, worker: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker or secrets.token_hex(4)
        self._clock = clock
        self._subscribers: dict[str, set[BusSubscriber]] = {}
        self._handlers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self._queues: dict[str, _Queue] = {}
        self._leases: dict[str, tuple[_MemoryLease, float]] = {}
        self._next_sweep = clock() + _SWEEP_EVERY

    @property
    def worker(self) -> str:
        return self._worker

    async def close(self) -> None:
        """Nothing is held but memory."""

    async def publish(self, topic: str, message: Json) -> None:
        for subscriber in self._subscribers.get(topic, ()):
            subscriber.put(message)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[Json], None]:
        """Messages published from now on; one that falls a thousand behind loses the oldest."""
        subscriber = BusSubscriber()
        self._subscribers.setdefault(topic, set()).add(subscriber)
        try:
            yield subscriber
        finally:
            peers = self._subscribers[topic]
            peers.discard(subscriber)
            if not peers:
                del self._subscribers[topic]

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        return await handled(self._handlers.get(topic) if worker == self._worker else None, message, timeout)

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None:
        self._handlers[topic] = handler

    async def push(self, queue: str, message: Json, ttl: float) -> None:
        """Raises `Fault(UNAVAILABLE)` when the queue, or the number of queues, is at its bound."""
        now = self._sweep()
        if queue not in self._queues and len(self._queues) >= _QUEUES:
            raise full("Too many queues hold messages.")
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
            if waiting.idle and self._queues.get(queue) is waiting:
                del self._queues[queue]

    async def lease(self, key: str, ttl: float) -> Lease | None:
        now = self._sweep()
        held = self._leases.get(key)
        if held is not None and held[1] > now:
            return None
        if held is None and len(self._leases) >= _LEASES:
            raise full("Too many leases are held.")
        lease = _MemoryLease(self._leases, key, ttl, self._clock)
        self._leases[key] = (lease, now + ttl)
        return lease

    def _sweep(self) -> float:
        """The time, after everything that nobody came back for was forgotten, if that is due."""
        now = self._clock()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_EVERY
            for key in [key for key, (_, expires) in self._leases.items() if expires <= now]:
                del self._leases[key]
            for queue in self._queues.values():
                queue.forget_expired(now)
            for name in [name for name, queue in self._queues.items() if queue.idle]:
                del self._queues[name]
        return now


async def handled(handler: Callable[[Json], Awaitable[Json]] | None, message: Json, timeout: float) -> Json:
    """What the handler of this very worker says; faults when there is none, or it takes too long."""
    if handler is None:
        raise nobody()
    scope = asyncio.timeout(timeout)
    try:
        async with scope:
            return await handler(message)
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise Fault(Kind.TIMEOUT, f"No answer from the worker within {timeout:g} s.") from exc


class BusSubscriber:
    """One subscriber's buffer, read as an endless iterator."""

    def __init__(self) -> None:
        self._messages: deque[Json] = deque(maxlen=_BUFFER)
        self._arrived = asyncio.Event()

    def put(self, message: Json) -> None:
        self._messages.append(message)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Json]:
        return self

    async def __anext__(self) -> Json:
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()


class _Queue:
    """Messages in order of arrival, each with the time at which it is forgotten."""

    def __init__(self) -> None:
        self.poppers = 0
        self._messages: deque[tuple[float, Json]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def idle(self) -> bool:
        return not self._messages and not self.poppers

    def put(self, message: Json, now: float, expires: float) -> None:
        if len(self._messages) >= MAX_QUEUE:
            self.forget_expired(now)
        if len(self._messages) >= MAX_QUEUE:
            raise full("The queue is full.")
        self._messages.append((expires, message))
        self._wake_one()

    async def get(self, clock: Callable[[], float]) -> Json:
        while (message := self._take(clock())) is None:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                if not woken.cancelled():  # woken and cancelled at once: the message is the next one's
                    self._wake_one()
                raise
            finally:
                if woken in self._waiting:
                    self._waiting.remove(woken)
        return message

    def forget_expired(self, now: float) -> None:
        self._messages = deque(row for row in self._messages if row[0] > now)

    def _take(self, now: float) -> Json | None:
        while self._messages:
            expires, message = self._messages.popleft()
            if expires > now:
                return message
        return None

    def _wake_one(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
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
        if not self._held(now):
            return False
        self._leases[self._key] = (self, now + self._ttl)
        return True

    async def release(self) -> None:
        if self._held(self._clock()):
            del self._leases[self._key]

    def _held(self, now: float) -> bool:
        holder, expires = self._leases.get(self._key, (None, 0.0))
        return holder is self and expires > now


def nobody() -> Fault:
    return Fault(Kind.UNAVAILABLE, "The worker that could answer is gone.")


def full(what: str) -> Fault:
    return Fault(Kind.UNAVAILABLE, f"{what} Try again.", retry_after=1.0)


async def open_bus(url: str | None, prefix: str) -> "MemoryBus | RedisBus":
    """Redis where an address is given; its library is an extra, and loaded only then."""
    if url is None:
        return MemoryBus()
    from gateway.state.redis_bus import RedisBus

    return await RedisBus.open(url, prefix)
