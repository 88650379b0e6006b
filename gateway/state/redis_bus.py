"""What Redis does for the bus in one step. Time is Redis's own, so that no two workers' clocks can disagree.

Queues over Redis: a message is kept until somebody reads it, or its time is over; nobody's leaving loses one.

The bus of several processes, over Redis.
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
from gateway.state.bus import MAX_QUEUE, BusSubscriber, full, handled, nobody
from gateway.state.redis_connection import FAILURES, RedisConnection, unreachable

_NOW: Final = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

# KEYS: queue, this push's own. ARGV: message, ttl in ms, most messages, channel to wake. 0: full.
PUSH: Final = (
    _NOW
    + """
local ttl = tonumber(ARGV[2])
if not redis.call('SET', KEYS[2], 1, 'NX', 'PX', 10000) then return 1 end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local kept = {}
  for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if tonumber(string.match(entry, '^(%d+):')) > now then kept[#kept + 1] = entry end
  end
  if #kept >= tonumber(ARGV[3]) then redis.call('DEL', KEYS[2]) return 0 end
  redis.call('DEL', KEYS[1])
  for _, entry in ipairs(kept) do redis.call('RPUSH', KEYS[1], entry) end
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now + ttl) .. ':' .. ARGV[1])
redis.call('PEXPIRE', KEYS[1], ttl, redis.call('LLEN', KEYS[1]) == 1 and 'NX' or 'GT')
redis.call('PUBLISH', ARGV[4], '1')
return 1
"""
)

# KEYS: queue, this pop's own, so that one whose answer was lost gets the same message when it asks again.
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

# KEYS: queue. ARGV: an entry as it was popped, channel to wake. It is the next one's again.
GIVE_BACK: Final = (
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

# KEYS: lease, count of all holders. ARGV: holder, ttl in ms. The holder's number, or 0.
TAKE_LEASE: Final = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
"""

# KEYS: lease. ARGV: holder, ttl in ms; a ttl of 0 gives it up.
RENEW_LEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""


_LOOK_AGAIN: Final = 1.0

"""A wake-up may be lost with a connection: whoever waits looks for itself this often."""

log = logging.getLogger("gatehouse.bus")


class RedisQueues:
    def __init__(self, link: RedisConnection, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._waiting: dict[str, deque[asyncio.Future[bytes]]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._returning: set[asyncio.Task[None]] = set()

    async def push(self, queue: str, message: bytes, ttl: float, most: int) -> bool:
        """False when it is full."""
        key = self._key(queue)
        keys, values = [key, f"{key}:{secrets.token_hex(8)}"], [message, max(1, round(ttl * 1000)), most]
        try:
            return bool(await self._link.run(PUSH, keys, [*values, self._wake(queue)]))
        except FAILURES as exc:
            raise unreachable() from exc

    async def pop(self, queue: str, timeout: float) -> bytes | None:
        if queue not in self._waiting and (found := await self._look(queue)) is not None:
            return found
        if timeout <= 0:
            return None
        handed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, deque()).append(handed)
        if queue not in self._pumps:
            self._pumps[queue] = asyncio.create_task(self._pump(queue))
        try:
            # Not wait_for: what was handed over at the last moment must not be lost.
            await asyncio.wait((handed,), timeout=timeout)
            if handed.done():
                return _message(handed.result())
            return None
        except asyncio.CancelledError:
            if handed.done():
                self._return(queue, handed.result())
            raise
        finally:
            handed.cancel()

    async def _look(self, queue: str) -> bytes | None:
        """One look, whose finding is not lost with a caller that leaves meanwhile."""
        looking = asyncio.ensure_future(self._take(queue))
        try:
            entry = await asyncio.shield(looking)
        except asyncio.CancelledError:
            looking.add_done_callback(lambda done: self._returned_from(queue, done))
            raise
        except FAILURES as exc:
            raise unreachable() from exc
        return None if entry is None else _message(entry)

    async def _pump(self, queue: str) -> None:
        """Takes for all of this process who wait for the queue, in the order they came."""
        waiting, woken, tries = self._waiting[queue], asyncio.Event(), 0
        try:
            async with self._link.ears.listening(self._wake(queue), lambda _data: woken.set()):
                while _someone(waiting):
                    woken.clear()
                    try:
                        entry = await self._take(queue)
                    except FAILURES:
                        log.log(
                            logging.DEBUG if tries else logging.WARNING, "a queue cannot be read; it is tried again"
                        )
                        tries += 1
                        await asyncio.sleep(min(_LOOK_AGAIN, 0.1 * tries))
                        continue
                    if entry is None:
                        await _either(woken, _LOOK_AGAIN)
                    elif _someone(waiting):
                        waiting.popleft().set_result(entry)
                    else:
                        await self._give_back(queue, entry)
        finally:
            # No await between these: whoever comes next finds either a living pump or none.
            del self._pumps[queue]
            if waiting and _someone(waiting):
                self._pumps[queue] = asyncio.create_task(self._pump(queue))
            else:
                del self._waiting[queue]

    async def _take(self, queue: str) -> bytes | None:
        key = self._key(queue)
        return await self._link.run(POP, [key, f"{key}:{secrets.token_hex(8)}"], [])

    async def _give_back(self, queue: str, entry: bytes) -> None:
        try:
            await self._link.run(GIVE_BACK, [self._key(queue)], [entry, self._wake(queue)])
        except FAILURES:
            log.warning("a message that nobody waited for any more was lost")

    def _return(self, queue: str, entry: bytes) -> None:
        task = asyncio.create_task(self._give_back(queue, entry))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def _returned_from(self, queue: str, done: "asyncio.Future[bytes | None]") -> None:
        if not done.cancelled() and done.exception() is None and (entry := done.result()) is not None:
            self._return(queue, entry)

    async def close(self) -> None:
        for waiting in self._waiting.values():
            for handed in waiting:
                handed.cancel()
        for task in tuple(self._pumps.values()):
            task.cancel()
        await asyncio.gather(*self._pumps.values(), *self._returning, return_exceptions=True)

    def _key(self, queue: str) -> str:
        return f"{{{self._prefix}:q:{queue}}}"

    def _wake(self, queue: str) -> str:
        return f"{self._prefix}:n:{queue}"


def _someone(waiting: "deque[asyncio.Future[bytes]]") -> bool:
    while waiting and waiting[0].done():
        waiting.popleft()
    return bool(waiting)


def _message(entry: bytes) -> bytes:
    return entry.partition(b":")[2]


async def _either(woken: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass


_encode: Final = msgspec.json.encode

_decode: Final = msgspec.json.decode


class RedisBus:
    """`gateway.contract.Bus` for many processes. Open it with `RedisBus.open`."""

    def __init__(self, link: RedisConnection, prefix: str) -> None:
        self._worker = secrets.token_hex(4)
        self._link = link
        self._prefix = prefix
        self._queues = RedisQueues(link, prefix)
        self._handlers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._answering: set[asyncio.Task[None]] = set()
        self._exit = AsyncExitStack()

    @classmethod
    async def open(cls, url: str, prefix: str = "gatehouse") -> "RedisBus":
        """Raises `Away` when nobody answers there."""
        bus = cls(RedisConnection(url), prefix)
        await bus._link.open()
        await bus._exit.enter_async_context(bus._link.ears.listening(bus._inbox(bus._worker), bus._heard))
        return bus

    @property
    def worker(self) -> str:
        return self._worker

    @property
    def link(self) -> RedisConnection:
        """For what else needs Redis: the limits of several processes."""
        return self._link

    async def close(self) -> None:
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._queues.close()
        await self._exit.aclose()
        await self._link.close()

    async def publish(self, topic: str, message: Json) -> None:
        await self._link.publish(f"{self._prefix}:t:{topic}", _encode(message))

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[Json], None]:
        """Messages published from now on; one that falls a thousand behind loses the oldest."""
        subscriber = BusSubscriber()

        def heard(data: bytes) -> None:
            subscriber.put(_decode(data))

        async with self._link.ears.listening(f"{self._prefix}:t:{topic}", heard):
            yield subscriber

    # ---- questions ----

    async def request(self, worker: str, topic: str, message: Json, timeout: float = 5.0) -> Json:
        if worker == self._worker:
            return await handled(self._handlers.get(topic), message, timeout)
        id = f"{self._worker}.{next(self._numbers)}"
        answered = self._asked[id] = asyncio.get_running_loop().create_future()
        question = {"id": id, "from": self._worker, "topic": topic, "message": message, "timeout": timeout}
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                if not await self._link.publish(self._inbox(worker), _encode(question)):
                    raise nobody()
                return await answered
        except TimeoutError as exc:
            if not scope.expired():
                raise
            raise Fault(Kind.TIMEOUT, f"No answer from the worker within {timeout:g} s.") from exc
        finally:
            del self._asked[id]

    def respond(self, topic: str, handler: Callable[[Json], Awaitable[Json]]) -> None:
        self._handlers[topic] = handler

    def _heard(self, data: bytes) -> None:
        message: Json = _decode(data)
        if (id := message.get("re")) is not None:
            answered = self._asked.get(id)
            if answered is not None and not answered.done():
                _settle(answered, message)
            return
        task = asyncio.create_task(self._answer(message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, question: Json) -> None:
        reply: Json = {"re": question["id"]}
        try:
            reply["answer"] = await handled(
                self._handlers.get(question["topic"]), question["message"], question["timeout"]
            )
        except Fault as fault:
            reply["fault"] = {"kind": fault.kind, "message": fault.message, "retryable": fault.retryable}
        except Exception:  # whoever asks must hear something, and this worker goes on
            log.exception("a question of another worker could not be answered")
            reply["fault"] = {"kind": Kind.INTERNAL, "message": "The other worker failed.", "retryable": False}
        try:
            await self._link.publish(self._inbox(question["from"]), _encode(reply))
        except Fault:
            log.warning("an answer to another worker was lost")

    def _inbox(self, worker: str) -> str:
        return f"{self._prefix}:w:{worker}"

    # ---- queues and leases ----

    async def push(self, queue: str, message: Json, ttl: float) -> None:
        """Raises `Fault(UNAVAILABLE)` when the queue is at its bound."""
        if not await self._queues.push(queue, _encode(message), ttl, MAX_QUEUE):
            raise full("The queue is full.")

    async def pop(self, queue: str, timeout: float) -> Json | None:
        found = await self._queues.pop(queue, timeout)
        return None if found is None else _decode(found)

    async def lease(self, key: str, ttl: float) -> Lease | None:
        lease = _RedisLease(self._link, f"{self._prefix}:l:{key}", ttl)
        return lease if await lease.take(f"{self._prefix}:fence") else None


class _RedisLease:
    def __init__(self, link: RedisConnection, key: str, ttl: float) -> None:
        self._link = link
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
            return await self._link.run(script, keys, values)
        except FAILURES as exc:
            raise unreachable() from exc


def _settle(answered: "asyncio.Future[Json]", reply: Json) -> None:
    fault = reply.get("fault")
    if fault is None:
        answered.set_result(reply["answer"])
    else:
        answered.set_exception(Fault(Kind(fault["kind"]), fault["message"], retryable=fault["retryable"]))
