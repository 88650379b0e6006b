"""The deadline stage: cancels a call that exceeds its timeout. Time spent waiting for the user does not count."""

import asyncio
from typing import Final

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind

TICK: Final = 0.05
"""Timer resolution in seconds: a call may exceed its deadline by this much."""


class Deadline:
    """A timer wheel: one event-loop timer serves all running calls, each in the slot of the tick at which it is due."""

    def __init__(self) -> None:
        self._slots: dict[int, set[_Timer]] = {}
        self._ticking = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        assert call.route is not None
        loop = self._loop
        if loop is None:  # cached: before Python 3.12 each lookup costs a system call
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        timer = _Timer(call, task, loop.time() + call.route.timeout)
        self._schedule(timer, loop)
        try:
            return await call_next(call)
        except asyncio.CancelledError as exc:
            # Only our own timer raises TIMEOUT; a cancellation from outside propagates.
            if timer.fired and task.uncancel() <= timer.cancelling:
                seconds = call.route.timeout
                raise Fault(Kind.TIMEOUT, f"No answer within {seconds:g} s.", stage="deadline") from exc
            raise
        finally:
            if (slot := self._slots.get(timer.tick)) is not None:
                slot.discard(timer)

    def running(self) -> list[Call]:
        """The calls that run at a backend now, or wait for capacity there; for the operator API."""
        return [watch.call for slot in self._slots.values() for watch in slot]

    def _schedule(self, watch: "_Timer", loop: asyncio.AbstractEventLoop) -> None:
        watch.tick = tick = int((watch.deadline + watch.call.wire.waited) / TICK) + 1
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = set()
        slot.add(watch)
        if not self._ticking:
            self._ticking = True
            loop.call_later(TICK, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = int(loop.time() / TICK)
        for tick in [tick for tick in self._slots if tick <= now]:
            for watch in self._slots.pop(tick):
                if watch.deadline + watch.call.wire.waited > loop.time():
                    self._schedule(watch, loop)  # the call waited for the user in the meantime
                else:
                    watch.fired = True
                    watch.task.cancel()
        self._slots = {tick: slot for tick, slot in self._slots.items() if slot}
        self._ticking = bool(self._slots)
        if self._ticking:
            loop.call_later(TICK, self._tick, loop)


class _Timer:
    __slots__ = ("call", "cancelling", "deadline", "fired", "task", "tick")

    def __init__(self, call: Call, task: "asyncio.Task[object]", ends: float) -> None:
        self.call = call
        self.task = task
        self.deadline = ends
        self.cancelling = task.cancelling()
        self.fired = False
        self.tick = 0
