"""The bus of several worker processes, over Redis.

Lua scripts change queues and leases atomically. They use Redis's clock, so differences between the workers' clocks do
not matter. A queued message is kept until it is popped or expires; a cancelled popper returns its message to the queue.
"""

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

from gateway.contract import Json, Lease
from gateway.errors import Fault, Kind
from gateway.state.bus_delivery import (
    MAX_QUEUE_LENGTH,
    BusSubscriber,
    capacity_exceeded,
    no_handler,
    reply_timeout,
    run_handler,
)
from gateway.state.redis_connection import FAILURES, RedisConnection, bus_unavailable

_NOW: Final = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

# KEYS: queue, deduplication key of this push. ARGV: message, ttl in ms, maximum length, wake-up channel.
# Returns 0 when the queue is full.
PUSH: Final = (
    _NOW
    + """
local ttl = tonumber(ARGV[2])
if not redis.call('SET', KEYS[2], 1, 'NX', 'PX', 10000) then return 1 end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local unexpired = {}
  for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if tonumber(string.match(entry, '^(%d+):')) > now then unexpired[#unexpired + 1] = entry end
  end
  if #unexpired >= tonumber(ARGV[3]) then redis.call('DEL', KEYS[2]) return 0 end
  redis.call('DEL', KEYS[1])
  for _, entry in ipairs(unexpired) do redis.call('RPUSH', KEYS[1], entry) end
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now + ttl) .. ':' .. ARGV[1])
redis.call('PEXPIRE', KEYS[1], ttl, redis.call('LLEN', KEYS[1]) == 1 and 'NX' or 'GT')
redis.call('PUBLISH', ARGV[4], '1')
return 1
"""
)

# KEYS: queue, key of this pop: a retry after a lost reply returns the same message.
POP: Final = (
    _NOW
    + """
local before = redis.call('GET', KEYS[2])
if before then return before end
while true do
  local entry = redis.call('LPOP', KEYS[1])
  if not entry then return false end
  if tonumber(string.match(entry, '^(%d+):')) > now then
    redis.call('SET', KEYS[2], entry, 'PX', 5000)
    return entry
  end
end
"""
)

# Puts a popped entry back at the head of the queue. KEYS: queue. ARGV: entry, wake-up channel.
REQUEUE: Final = (
    _NOW
    + """
local left = tonumber(string.match(ARGV[1], '^(%d+):')) - now
if left <= 0 then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], left, redis.call('LLEN', KEYS[1]) == 1 and 'NX' or 'GT')
redis.call('PUBLISH', ARGV[2], '1')
return 1
"""
)

# KEYS: lease, fence counter. ARGV: holder, ttl in ms. Returns the fence number, or 0 when another holder has the lease.
TAKE_LEASE: Final = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
"""

# KEYS: lease. ARGV: holder, ttl in ms; a ttl of 0 releases the lease. Returns 0 when the holder has lost it.
RENEW_LEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""


_POLL_SECONDS: Final = 1.0
"""Interval at which a waiting popper polls, because a wake-up can be lost with its connection."""
log = logging.getLogger("gatehouse.bus")


class RedisQueues:
    """Message queues in Redis. All poppers of one queue in this process share one polling task."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._waiting: dict[str, deque[asyncio.Future[bytes]]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._requeue_tasks: set[asyncio.Task[None]] = set()

    async def push(self, queue: str, message: bytes, ttl: float, max_length: int) -> bool:
        """Append a message. Returns False when the queue is full."""
        key = self._key(queue)
        keys, values = [key, f"{key}:{secrets.token_hex(8)}"], [message, max(1, round(ttl * 1000)), max_length]
        try:
            return bool(await self._connection.run(PUSH, keys, [*values, self._wake_channel(queue)]))
        except FAILURES as exc:
            raise bus_unavailable() from exc

    async def pop(self, queue: str, timeout: float) -> bytes | None:
        if queue not in self._waiting and (message := await self._pop_now(queue)) is not None:
            return message
        if timeout <= 0:
            return None
        delivery: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, deque()).append(delivery)
        if queue not in self._pumps:
            self._pumps[queue] = asyncio.create_task(self._pump(queue))
        try:
            # Not `wait_for`: it could lose a message delivered at the moment of the timeout.
            await asyncio.wait((delivery,), timeout=timeout)
            if delivery.done():
                return _message(delivery.result())
            return None
        except asyncio.CancelledError:
            if delivery.done():
                self._schedule_requeue(queue, delivery.result())
            raise
        finally:
            delivery.cancel()

    async def _pop_now(self, queue: str) -> bytes | None:
        """Pop without waiting. A message popped for a cancelled caller is returned to the queue."""
        pop = asyncio.ensure_future(self._pop_entry(queue))
        try:
            entry = await asyncio.shield(pop)
        except asyncio.CancelledError:
            pop.add_done_callback(lambda done: self._requeue_result(queue, done))
            raise
        except FAILURES as exc:
            raise bus_unavailable() from exc
        return None if entry is None else _message(entry)

    async def _pump(self, queue: str) -> None:
        """Pop messages for all waiting poppers of this process, in the order in which they started to wait."""
        waiting, wakeup, attempts = self._waiting[queue], asyncio.Event(), 0
        try:
            async with self._connection.subscriptions.subscribe(self._wake_channel(queue), lambda _data: wakeup.set()):
                while _has_waiters(waiting):
                    wakeup.clear()
                    try:
                        entry = await self._pop_entry(queue)
                    except FAILURES:
                        log.log(logging.DEBUG if attempts else logging.WARNING, "bus: reading a queue failed; retrying")
                        attempts += 1
                        await asyncio.sleep(min(_POLL_SECONDS, 0.1 * attempts))
                        continue
                    if entry is None:
                        await _wait_with_timeout(wakeup, _POLL_SECONDS)
                    elif _has_waiters(waiting):
                        waiting.popleft().set_result(entry)
                    else:
                        await self._requeue(queue, entry)
        finally:
            # No await between these statements: a new popper must find either a running pump or none.
            del self._pumps[queue]
            if waiting and _has_waiters(waiting):
                self._pumps[queue] = asyncio.create_task(self._pump(queue))
            else:
                del self._waiting[queue]

    async def _pop_entry(self, queue: str) -> bytes | None:
        key = self._key(queue)
        return await self._connection.run(POP, [key, f"{key}:{secrets.token_hex(8)}"], [])

    async def _requeue(self, queue: str, entry: bytes) -> None:
        try:
            await self._connection.run(REQUEUE, [self._key(queue)], [entry, self._wake_channel(queue)])
        except FAILURES:
            log.warning("bus: returning a message to its queue failed; the message is lost")

    def _schedule_requeue(self, queue: str, entry: bytes) -> None:
        task = asyncio.create_task(self._requeue(queue, entry))
        self._requeue_tasks.add(task)
        task.add_done_callback(self._requeue_tasks.discard)

    def _requeue_result(self, queue: str, done: "asyncio.Future[bytes | None]") -> None:
        if not done.cancelled() and done.exception() is None and (entry := done.result()) is not None:
            self._schedule_requeue(queue, entry)

    async def close(self) -> None:
        for waiting in self._waiting.values():
            for delivery in waiting:
                delivery.cancel()
        for task in tuple(self._pumps.values()):
            task.cancel()
        await asyncio.gather(*self._pumps.values(), *self._requeue_tasks, return_exceptions=True)

    def _key(self, queue: str) -> str:
        return f"{{{self._prefix}:q:{queue}}}"

    def _wake_channel(self, queue: str) -> str:
        return f"{self._prefix}:n:{queue}"


def _has_waiters(waiting: "deque[asyncio.Future[bytes]]") -> bool:
    while waiting and waiting[0].done():
        waiting.popleft()
    return bool(waiting)


def _message(entry: bytes) -> bytes:
    return entry.partition(b":")[2]


async def _wait_with_timeout(wakeup: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wakeup.wait()
    except TimeoutError:
        pass


_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.decode


class RedisBus:
    """`gateway.contract.Bus` for many processes. Open it with `RedisBus.open`."""

    def __init__(self, connection: RedisConnection, prefix: str) -> None:
        self._worker = secrets.token_hex(4)
        self._connection = connection
        self._prefix = prefix
        self._queues = RedisQueues(connection, prefix)
        self._handlers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self._pending_replies: dict[str, asyncio.Future[Json]] = {}
        self._request_numbers = itertools.count(1)
        self._handler_tasks: set[asyncio.Task[None]] = set()
        self._exit_stack = AsyncExitStack()

    @classmethod
    async def open(cls, url: str, prefix: str = "gatehouse") -> "RedisBus":
        """Connect to Redis. Raises `Unreachable` when the server does not answer."""
        bus = cls(RedisConnection(url), prefix)
        await bus._connection.open()
        await bus._exit_stack.enter_async_context(
            bus._connection.subscriptions.subscribe(bus._inbox_channel(bus._worker), bus._receive)
        )
        return bus

    @property
    def worker(self) -> str:
        return self._worker

    @property
    def connection(self) -> RedisConnection:
        """The Redis connection, which the shared rate limits use too."""
        return self._connection

    async def close(self) -> None:
        for task in self._handler_tasks:
            task.cancel()
        await asyncio.gather(*self._handler_tasks, return_exceptions=True)
        await self._queues.close()
        await self._exit_stack.aclose()
        await self._connection.close()

    async def publish(self, topic: str, message: Json) -> None:
        await self._connection.publish(f"{self._prefix}:t:{topic}", _encode(message))

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[Json], None]:
        """Yield the messages published from now on. A subscriber that is 1000 messages behind loses the oldest."""
        subscriber = BusSubscriber()

        def deliver(data: bytes) -> None:
            subscriber.put(_decode(data))

        async with self._connection.subscriptions.subscribe(f"{self._prefix}:t:{topic}", deliver):
            yield subscriber

    # ---- requests ----

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        if worker == self._worker:
            return await run_handler(self._handlers.get(topic), message, timeout)
        id = f"{self._worker}.{next(self._request_numbers)}"
        reply = self._pending_replies[id] = asyncio.get_running_loop().create_future()
        request = {"id": id, "from": self._worker, "topic": topic, "message": message, "timeout": timeout}
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                if not await self._connection.publish(self._inbox_channel(worker), _encode(request)):
                    raise no_handler()
                return await reply
        except TimeoutError as exc:
            if not scope.expired():
                raise
            raise reply_timeout(timeout) from exc
        finally:
            del self._pending_replies[id]

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None:
        self._handlers[topic] = handler

    def _receive(self, data: bytes) -> None:
        message: Json = _decode(data)
        if (id := message.get("re")) is not None:
            reply = self._pending_replies.get(id)
            if reply is not None and not reply.done():
                _resolve_reply(reply, message)
            return
        task = asyncio.create_task(self._handle_request(message))
        self._handler_tasks.add(task)
        task.add_done_callback(self._handler_tasks.discard)

    async def _handle_request(self, request: Json) -> None:
        reply: Json = {"re": request["id"]}
        try:
            reply["answer"] = await run_handler(
                self._handlers.get(request["topic"]), request["message"], request["timeout"]
            )
        except Fault as fault:
            reply["fault"] = {"kind": fault.kind, "message": fault.message, "retryable": fault.retryable}
        except Exception:  # the requester must get a reply, and this worker must go on
            log.exception("bus: handling a request of another worker failed; replying with an internal error")
            reply["fault"] = {"kind": Kind.INTERNAL, "message": "The other worker failed.", "retryable": False}
        try:
            await self._connection.publish(self._inbox_channel(request["from"]), _encode(reply))
        except Fault:
            log.warning("bus: sending a reply to another worker failed; the request will time out")

    def _inbox_channel(self, worker: str) -> str:
        return f"{self._prefix}:w:{worker}"

    # ---- queues and leases ----

    async def push(self, queue: str, message: Json, ttl: float) -> None:
        """Raises `Fault(UNAVAILABLE)` when the queue is full."""
        if not await self._queues.push(queue, _encode(message), ttl, MAX_QUEUE_LENGTH):
            raise capacity_exceeded("The queue is full.")

    async def pop(self, queue: str, timeout: float) -> Json | None:
        message = await self._queues.pop(queue, timeout)
        return None if message is None else _decode(message)

    async def lease(self, key: str, ttl: float) -> Lease | None:
        lease = _RedisLease(self._connection, f"{self._prefix}:l:{key}", ttl)
        return lease if await lease.take(f"{self._prefix}:fence") else None


class _RedisLease:
    def __init__(self, connection: RedisConnection, key: str, ttl: float) -> None:
        self._connection = connection
        self._key = key
        self._ms = max(1, round(ttl * 1000))
        self._holder = secrets.token_hex(16)
        self.fence = 0

    async def take(self, counter: str) -> bool:
        self.fence = int(await self._run(TAKE_LEASE, [self._key, counter], [self._holder, self._ms]))
        return self.fence > 0

    async def renew(self) -> bool:
        return bool(await self._run(RENEW_LEASE, [self._key], [self._holder, self._ms]))

    async def release(self) -> None:
        await self._run(RENEW_LEASE, [self._key], [self._holder, 0])

    async def _run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        try:
            return await self._connection.run(script, keys, values)
        except FAILURES as exc:
            raise bus_unavailable() from exc


def _resolve_reply(reply: "asyncio.Future[Json]", message: Json) -> None:
    fault = message.get("fault")
    if fault is None:
        reply.set_result(message["answer"])
    else:
        reply.set_exception(Fault(Kind(fault["kind"]), fault["message"], retryable=fault["retryable"]))
