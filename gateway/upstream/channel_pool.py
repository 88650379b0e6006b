"""One pipe for each of those who must not share one: made when first needed, and again when it has ended."""

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

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
EACH: Final = 8
"""Pipes that one owner has at most: for clients of either era, and for clients that can do other things."""

Whose = tuple[Any, ...]
"""Its owner first. Empty: the one that lists are read from, which is never closed to make room."""


@dataclass(frozen=True, slots=True)
class _StartFailure:
    """Times in a row that a pipe did not start, or ended before it was of any use."""

    count: int
    until: float


def _not_told(whose: Whose, pipe: JsonRpcChannel) -> None:
    """Nobody asked to be told of new ones."""


class ChannelPool:
    """At most `most` at a time; whichever was not used for longest makes room, the owner's own first, never one in use.

    They are started in turn, as `starts` allows. What keeps failing is not started again at once: each time after a
    longer pause, up to a minute.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], JsonRpcChannel],
        most: int,
        starts: StartLimiter,
        opened: Callable[[Whose, JsonRpcChannel], None] = _not_told,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._make = make
        self._most = most
        self._starts = starts
        self._opened = opened
        self._clock = clock
        self._pipes: OrderedDict[Whose, JsonRpcChannel] = OrderedDict()
        self._starting: dict[Whose, asyncio.Task[JsonRpcChannel]] = {}
        self._setbacks: OrderedDict[Whose, _StartFailure] = OrderedDict()
        self._stopping: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pipes)

    async def get(self, whose: Whose, capabilities: Json, known: Era | None) -> JsonRpcChannel:
        """Theirs, alive. Raises `Fault(UNAVAILABLE)` when it cannot be started, or may not yet."""
        pipe = self._pipes.get(whose)
        if pipe is not None and not pipe.dead:
            self._pipes.move_to_end(whose)
            return pipe
        starting = self._starting.get(whose)
        if starting is None:
            if pipe is not None:
                self._lost(whose, pipe)
            self._check(whose)
            starting = self._starting[whose] = asyncio.create_task(self._start(whose, capabilities, known))
            starting.add_done_callback(lambda _: self._starting.pop(whose, None))
        # Whoever gives up waiting does not take the start from the others.
        return await asyncio.shield(starting)

    def alive(self) -> list[tuple[Whose, JsonRpcChannel]]:
        """Those that run, the last used first."""
        return [(whose, pipe) for whose, pipe in reversed(self._pipes.items()) if not pipe.dead]

    async def close(self) -> None:
        self._closed = True
        for task in list(self._starting.values()):
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        pipes = list(self._pipes.values())
        self._pipes.clear()
        await asyncio.gather(*(pipe.stop() for pipe in pipes), *self._stopping)

    async def _start(self, whose: Whose, capabilities: Json, known: Era | None) -> JsonRpcChannel:
        try:
            async with self._starts.turn():
                pipe = await self._started(capabilities, known)
        except (Fault, ForeignError):
            self._set_back(whose)
            raise
        self._pipes[whose] = pipe
        self._opened(whose, pipe)
        return pipe

    async def _started(self, capabilities: Json, known: Era | None) -> JsonRpcChannel:
        pipe = self._make()
        try:
            await pipe.start(capabilities, known)
        except Fault:
            if known is not None:
                raise
            # Some older servers end at the first word they do not know: then the old way, from the start.
            pipe = self._make()
            await pipe.start(capabilities, "handshake")
        return pipe

    # ---- what went wrong ----

    def _check(self, whose: Whose) -> None:
        setback = self._setbacks.get(whose)
        if setback is not None and (left := setback.until - self._clock()) > 0:
            message = f"{self._name} fails again and again; it is started anew in a while."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=max(1.0, round(left, 1)))
        if self._closed or not self._room(whose):
            raise Fault(Kind.UNAVAILABLE, f"{self._name} serves as many as it may.", retry_after=1.0)

    def _room(self, whose: Whose) -> bool:
        """Whether one more may be started, after an idle one was let go if need be."""
        own = [each for each in (*self._pipes, *self._starting) if whose and each[:1] == whose[:1]]
        if len(own) < EACH and len(self._pipes) + len(self._starting) < self._most:
            return True
        others = self._pipes if len(own) < EACH else ()
        idle = next((each for each in (*own, *others) if each and self._is_idle(each)), None)
        if idle is None:
            return False
        self._stop(self._pipes.pop(idle))
        return True

    def _is_idle(self, whose: Whose) -> bool:
        pipe = self._pipes.get(whose)
        return pipe is not None and not pipe.busy

    def _lost(self, whose: Whose, pipe: JsonRpcChannel) -> None:
        del self._pipes[whose]
        self._stop(pipe)
        if pipe.useful:
            self._setbacks.pop(whose, None)
        else:
            self._set_back(whose)

    def _set_back(self, whose: Whose) -> None:
        known = self._setbacks.pop(whose, None)
        count = known.count + 1 if known is not None else 1
        # The first time may be chance: it is tried again at once.
        pause = min(FIRST_PAUSE * 2.0 ** (count - 2), LONGEST_PAUSE) if count > 1 else 0.0
        self._setbacks[whose] = _StartFailure(count, self._clock() + pause)
        while len(self._setbacks) > 4 * self._most:
            self._setbacks.popitem(last=False)

    def _stop(self, pipe: JsonRpcChannel) -> None:
        self._spawn(pipe.stop())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
