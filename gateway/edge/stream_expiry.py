"""Open streams end with the credential that opened them: at its expiry, or when it is revoked."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from gateway.contract import Caller

GRACE: Final = 30.0
"""Seconds that a stream may outlive its token by: as much as clocks may differ. A key's end is by our own clock."""


class ExpiringStream(Protocol):
    """An answer that is being written piece by piece."""

    def cut(self, *, stop: bool) -> None:
        """End it as if the client had left; `stop` also ends the work behind it."""
        ...


class StreamExpiry:
    """The streams of this worker, and whose they are."""

    def __init__(self, grace: float = GRACE, *, clock: Callable[[], float] = time.time) -> None:
        self._grace = grace
        self._clock = clock
        self._open: dict[ExpiringStream, tuple[Caller, asyncio.TimerHandle | None]] = {}
        self._reviewing = asyncio.Lock()

    def opened(self, caller: Caller, stream: ExpiringStream) -> None:
        timer = None
        if caller.expires is not None:
            grace = self._grace if caller.token else 0.0
            left = max(caller.expires + grace - self._clock(), 0.0)
            timer = asyncio.get_running_loop().call_later(left, self._expired, stream)
        self._open[stream] = (caller, timer)

    def closed(self, stream: ExpiringStream) -> None:
        _, timer = self._open.pop(stream, (None, None))
        if timer is not None:
            timer.cancel()

    async def review(self, good: Callable[[Caller], Awaitable[bool]]) -> None:
        """Cut every stream whose credential is no longer good; asked once for each credential."""
        async with self._reviewing:
            verdicts: dict[tuple[str, str], bool] = {}
            for stream, (caller, _) in list(self._open.items()):
                key = (caller.credential, caller.token)
                if key not in verdicts:
                    verdicts[key] = await good(caller)
                if not verdicts[key]:
                    self.closed(stream)
                    stream.cut(stop=True)

    def _expired(self, stream: ExpiringStream) -> None:
        self.closed(stream)
        stream.cut(stop=False)
