"""Queues over Redis: a message is kept until somebody reads it, or its time is over; nobody's leaving loses one."""

import asyncio
import logging
import secrets
from collections import deque
from typing import Final

from gateway.state.redis_link import FAILURES, Link, unreachable
from gateway.state.redis_scripts import GIVE_BACK, POP, PUSH

_LOOK_AGAIN: Final = 1.0
"""A wake-up may be lost with a connection: whoever waits looks for itself this often."""

log = logging.getLogger("gatehouse.bus")


class Queues:
    def __init__(self, link: Link, prefix: str) -> None:
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
