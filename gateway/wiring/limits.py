"""Builds the rate limits of calls, plain routes and failed sign-ins; several processes share them through Redis."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import limits

from gateway.settings.limits import LimitRule, LimitSettings
from gateway.stages.limit import CallCosts, Limit, RateRule
from gateway.state.bus import MemoryBus
from gateway.state.windows import WindowCharge

if TYPE_CHECKING:
    from gateway.auth.server.signin import FailureCounter
    from gateway.edge.ip_rate_limit import SharedCounter
    from gateway.state.redis_bus import RedisBus
    from gateway.state.redis_windows import RedisWindows


def limit_stage(settings: LimitSettings, windows: "RedisWindows | None") -> Limit:
    """Build the limit stage; it counts in memory for one process and in Redis for several."""
    rate = limits.parse(settings.calls)
    rules = [RateRule("calls", rate.amount, rate.get_expiry()), *(_rate_rule(*each) for each in settings.rules.items())]
    costs = CallCosts(tuple(settings.costs.items()), settings.cost_per_kilobyte)
    if windows is None:
        return Limit(rules, costs)
    from gateway.state.redis_windows import RedisUnavailable

    return Limit(rules, costs, windows, RedisUnavailable)


def _rate_rule(name: str, settings: LimitRule) -> RateRule:
    rate = limits.parse(settings.rate)
    return RateRule(
        name,
        rate.amount,
        rate.get_expiry(),
        per=settings.per,
        backend=settings.backend,
        tool=settings.tool,
        effects=frozenset(settings.effects) if settings.effects is not None else None,
        counts=settings.counts,
        on_failure=settings.on_failure,
    )


def shared_windows(bus: "MemoryBus | RedisBus", prefix: str) -> "RedisWindows | None":
    if isinstance(bus, MemoryBus):
        return None
    from gateway.state.redis_windows import RedisWindows

    return RedisWindows(bus.connection, prefix)


def shared_route_limits(windows: "RedisWindows | None") -> "SharedCounter | None":
    """Return the shared counter of `IpRateLimiter`. While Redis is unreachable, each process counts for itself."""
    if windows is None:
        return None
    from gateway.state.redis_windows import RedisUnavailable

    async def take(key: str, amount: float, seconds: float) -> float:
        if windows.spend((key,), time.monotonic()):
            return 0.0
        try:
            short = await windows.take([WindowCharge(key, amount, seconds)])
        except RedisUnavailable:
            return 0.0
        return 0.0 if short is None else short.wait

    return take


def sign_in_failure_counter(windows: "RedisWindows | None") -> "FailureCounter":
    from gateway.auth.server.signin import MemoryFailureCounter

    return MemoryFailureCounter() if windows is None else _SharedFailureCounter(windows)


class _SharedFailureCounter:
    """Counts in Redis and in this process; the local count alone applies while Redis is unreachable."""

    def __init__(self, windows: "RedisWindows") -> None:
        from gateway.auth.server.signin import MemoryFailureCounter
        from gateway.state.redis_windows import RedisUnavailable

        self._windows = windows
        self._unavailable = RedisUnavailable
        self._local = MemoryFailureCounter()

    async def count(self, name: str, limit: int, seconds: float) -> float:
        if (here := await self._local.count(name, limit, seconds)) > 0:
            return here
        try:
            short = await self._windows.take([WindowCharge(f"sign-in|{name}", limit, seconds)])
        except self._unavailable:
            return 0.0
        if short is None:
            return 0.0
        await self._local.uncount(name, seconds)
        return short.wait

    async def uncount(self, name: str, seconds: float) -> None:
        await self._local.uncount(name, seconds)
        with suppress(self._unavailable):
            await self._windows.add([WindowCharge(f"sign-in|{name}", 1.0, seconds, weight=-1.0)])
