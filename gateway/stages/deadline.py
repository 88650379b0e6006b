"""A call that runs past its time is cancelled. Time spent waiting for a person does not count."""

import asyncio
from typing import Final

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind

TICK: Final = 0.05
"""Seconds by which a call may outlive its deadline."""


class Deadline:
    """One timer for all calls under way, not one each: they wait in the slot of the tick at which they are due."""

    def __init__(self) -> None:
        self._due: dict[int, set[_Watch]] = {}
        self._ticking = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        assert call.route is not None
        loop = self._loop
        if loop is None:  # asked for once: before Python 3.12 each time takes a system call
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        watch = _Watch(call, task, loop.time() + call.route.timeout)
        self._put(watch, loop)
        try:
            return await call_next(call)
        except asyncio.CancelledError as exc:
            # Only our own watch can say TIMEOUT; a cancellation from outside goes on.
            if watch.fired and task.uncancel() <= watch.cancelling:
                seconds = call.route.timeout
                raise Fault(Kind.TIMEOUT, f"No answer within {seconds:g} s.", stage="deadline") from exc
            raise
        finally:
            if (slot := self._due.get(watch.tick)) is not None:
                slot.discard(watch)

    def under_way(self) -> list[Call]:
        """For whoever looks: the calls that are at a backend now, or wait for a place at one."""
        return [watch.call for slot in self._due.values() for watch in slot]

    def _put(self, watch: "_Watch", loop: asyncio.AbstractEventLoop) -> None:
        watch.tick = tick = int((watch.ends + watch.call.wire.waited) / TICK) + 1
        slot = self._due.get(tick)
        if slot is None:
            slot = self._due[tick] = set()
        slot.add(watch)
        if not self._ticking:
            self._ticking = True
            loop.call_later(TICK, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = int(loop.time() / TICK)
        for tick in [tick for tick in self._due if tick <= now]:
            for watch in self._due.pop(tick):
                if watch.ends + watch.call.wire.waited > loop.time():
                    self._put(watch, loop)  # a person was waited for meanwhile
                else:
                    watch.fired = True
                    watch.task.cancel()
        self._due = {tick: slot for tick, slot in self._due.items() if slot}
        self._ticking = bool(self._due)
        if self._ticking:
            loop.call_later(TICK, self._tick, loop)


class _Watch:
    __slots__ = ("call", "cancelling", "ends", "fired", "task", "tick")

    def __init__(self, call: Call, task: "asyncio.Task[object]", ends: float) -> None:
        self.call = call
        self.task = task
        self.ends = ends
        self.cancelling = task.cancelling()
        self.fired = False
        self.tick = 0
