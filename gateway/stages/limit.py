"""So many calls a minute for each principal. Charged first, also for calls that are refused later."""

import time

from limits import RateLimitItem
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind


class Limit:
    """The sliding window counter: two numbers a principal, however high the limit."""

    def __init__(self, rate: RateLimitItem) -> None:
        self._rate = rate
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        principal = call.caller.principal
        if not await self._limiter.hit(self._rate, principal):
            window = await self._limiter.get_window_stats(self._rate, principal)
            raise Fault(
                Kind.RATE_LIMITED,
                f"Too many calls: {self._rate} is allowed.",
                retry_after=max(1.0, round(window.reset_time - time.time(), 1)),
            )
        return await call_next(call)
