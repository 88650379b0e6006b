"""The outermost stage: assigns the call's trace position and reports the finished call to telemetry."""

from collections.abc import Callable, Mapping, Sequence

from gateway.contract import Call, Handler, Result
from gateway.contract.trace_position import TracePosition

Reporter = Callable[[Call, Result | None, BaseException | None], None]
"""Receives a finished call with its result, or with the exception it raised."""


class Trace:
    """Calls `reporters` once per call, in order. `running` is the number of calls in progress."""

    def __init__(self, position: Callable[[Mapping[str, str]], TracePosition], reporters: Sequence[Reporter]) -> None:
        self._position = position
        self._reporters = tuple(reporters)
        self.running = 0

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        call.record.position = self._position(call.trace)
        self.running += 1
        try:
            result = await call_next(call)
        except BaseException as exc:
            self.running -= 1
            for report in self._reporters:
                report(call, None, exc)
            raise
        self.running -= 1
        for report in self._reporters:
            report(call, result, None)
        return result
