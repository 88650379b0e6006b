"""The bus of several processes, over Redis."""

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

from gateway.contract import Json, Lease
from gateway.errors import Fault, Kind
from gateway.state.bus import MAX_QUEUE, Subscriber, full, handled, nobody
from gateway.state.redis_link import FAILURES, Link, unreachable
from gateway.state.redis_queues import Queues
from gateway.state.redis_scripts import RENEW_LEASE, TAKE_LEASE

log = logging.getLogger("gatehouse.bus")

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.decode


class RedisBus:
    """`gateway.contract.Bus` for many processes. Open it with `RedisBus.open`."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._worker = secrets.token_hex(4)
        self._link = link
        self._prefix = prefix
        self._queues = Queues(link, prefix)
        self._handlers: dict[str, Callable[[Json], Awaitable[Json]]] = {}
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._answering: set[asyncio.Task[None]] = set()
        self._exit = AsyncExitStack()

    @classmethod
    async def open(cls, url: str, prefix: str = "gatehouse") -> "RedisBus":
        """Raises `Away` when nobody answers there."""
        bus = cls(Link(url), prefix)
        await bus._link.open()
        await bus._exit.enter_async_context(bus._link.ears.listening(bus._inbox(bus._worker), bus._heard))
        return bus

    @property
    def worker(self) -> str:
        return self._worker

    @property
    def link(self) -> Link:
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
        subscriber = Subscriber()

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
    def __init__(self, link: Link, key: str, ttl: float) -> None:
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
