"""The outermost stage: the call gets its place in a trace, and when it ends, its record is told to whoever keeps it."""

from collections.abc import Callable, Mapping

from gateway.contract import Call, Handler, Result
from gateway.contract.trace_position import TracePosition

Told = Callable[[Call, Result | None, BaseException | None], None]
"""The call, and its result or what it raised."""


class Trace:
    """Counts the calls under way as well."""

    def __init__(self, place: Callable[[Mapping[str, str]], TracePosition], told: Told) -> None:
        self._place = place
        self._told = told
        self.running = 0

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        call.record.position = self._place(call.trace)
        self.running += 1
        try:
            result = await call_next(call)
        except BaseException as exc:
            self.running -= 1
            self._told(call, None, exc)
            raise
        self.running -= 1
        self._told(call, result, None)
        return result
