"""What processes with one Redis count together: requests to plain routes, failed sign-ins."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.auth.server.signin import MemoryTally, Tally
from gateway.edge.turnstile import Shared
from gateway.state.bus import MemoryBus
from gateway.state.windows import Charge

if TYPE_CHECKING:
    from gateway.state.redis_bus import RedisBus
    from gateway.state.redis_windows import RedisWindows


def shared_windows(bus: "MemoryBus | RedisBus", prefix: str) -> "RedisWindows | None":
    if isinstance(bus, MemoryBus):
        return None
    from gateway.state.redis_windows import RedisWindows

    return RedisWindows(bus.link, prefix)


def counted_routes(windows: "RedisWindows | None") -> Shared | None:
    """For `Turnstile`. While Redis is away each process still counts for itself."""
    if windows is None:
        return None
    from gateway.state.redis_windows import Unreachable

    async def take(key: str, amount: float, seconds: float) -> float:
        if windows.spend((key,), time.monotonic()):
            return 0.0
        try:
            short = await windows.take([Charge(key, amount, seconds)])
        except Unreachable:
            return 0.0
        return 0.0 if short is None else short.wait

    return take


def failed_sign_ins(windows: "RedisWindows | None") -> Tally:
    return MemoryTally() if windows is None else _SharedTally(windows)


class _SharedTally:
    """Counts in Redis, and beside it in this process, which alone counts while Redis is away."""

    def __init__(self, windows: "RedisWindows") -> None:
        from gateway.state.redis_windows import Unreachable

        self._windows = windows
        self._down = Unreachable
        self._here = MemoryTally()

    async def take(self, name: str, most: int, seconds: float) -> float:
        if (here := await self._here.take(name, most, seconds)) > 0:
            return here
        try:
            short = await self._windows.take([Charge(f"sign-in|{name}", most, seconds)])
        except self._down:
            return 0.0
        if short is None:
            return 0.0
        await self._here.give_back(name, seconds)
        return short.wait

    async def give_back(self, name: str, seconds: float) -> None:
        await self._here.give_back(name, seconds)
        with suppress(self._down):
            await self._windows.add([Charge(f"sign-in|{name}", 1.0, seconds, weight=-1.0)])
