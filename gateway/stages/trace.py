"""The outermost stage: when the call ends, its record is told to whoever keeps spans, metrics and logs."""

from collections.abc import Callable

from gateway.contract import Call, Handler, Result


class Trace:
    def __init__(self, told: Callable[[Call], None]) -> None:
        self._told = told

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        try:
            return await call_next(call)
        finally:
            self._told(call)
