"""A call that runs past its time is cancelled. Time spent waiting for a person does not count."""

import asyncio

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind


class Deadline:
    async def __call__(self, call: Call, call_next: Handler) -> Result:
        assert call.route is not None
        task = asyncio.current_task(asyncio.get_running_loop())
        assert task is not None
        watch = _Watch(call, task, call.route.timeout)
        try:
            return await call_next(call)
        except asyncio.CancelledError as exc:
            # Only our own watch can say TIMEOUT; a cancellation from outside goes on.
            if watch.fired and task.uncancel() <= watch.cancelling:
                raise Fault(Kind.TIMEOUT, f"No answer within {watch.seconds:g} s.", stage="deadline") from exc
            raise
        finally:
            watch.timer.cancel()


class _Watch:
    """One timer; it re-arms for the time that was spent waiting."""

    __slots__ = ("_call", "_loop", "_started", "_task", "cancelling", "fired", "seconds", "timer")

    def __init__(self, call: Call, task: "asyncio.Task[object]", seconds: float) -> None:
        self._call = call
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self.seconds = seconds
        self.cancelling = task.cancelling()
        self.fired = False
        self.timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        left = self._started + self.seconds + self._call.wire.waited - self._loop.time()
        if left > 0.01:
            self.timer = self._loop.call_later(left, self._ring)
        else:
            self.fired = True
            self._task.cancel()
