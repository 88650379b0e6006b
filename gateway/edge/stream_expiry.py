"""Ends open streams when the credential that opened them expires or is revoked."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from gateway.contract import Caller

GRACE: Final = 30.0
"""Seconds that a stream may outlive its token, for clock skew. API keys expire by our own clock, without it."""


class ExpiringStream(Protocol):
    """A streamed response."""

    def end(self, *, stop: bool) -> None:
        """End the response as on a disconnect; `stop` also cancels the request."""
        ...


class StreamExpiry:
    """The open streams of this worker, by caller."""

    def __init__(self, grace: float = GRACE, *, clock: Callable[[], float] = time.time) -> None:
        self._grace = grace
        self._clock = clock
        self._open: dict[ExpiringStream, tuple[Caller, asyncio.TimerHandle | None]] = {}
        self._reviewing = asyncio.Lock()

    def add(self, caller: Caller, stream: ExpiringStream) -> None:
        timer = None
        if caller.expires is not None:
            grace = self._grace if caller.token else 0.0
            left = max(caller.expires + grace - self._clock(), 0.0)
            timer = asyncio.get_running_loop().call_later(left, self._expire, stream)
        self._open[stream] = (caller, timer)

    def remove(self, stream: ExpiringStream) -> None:
        _, timer = self._open.pop(stream, (None, None))
        if timer is not None:
            timer.cancel()

    async def end_invalid(self, is_valid: Callable[[Caller], Awaitable[bool]]) -> None:
        """End every stream whose credential is no longer valid; checks each credential once."""
        async with self._reviewing:
            verdicts: dict[tuple[str, str], bool] = {}
            for stream, (caller, _) in list(self._open.items()):
                key = (caller.credential, caller.token)
                if key not in verdicts:
                    verdicts[key] = await is_valid(caller)
                if not verdicts[key]:
                    self.remove(stream)
                    stream.end(stop=True)

    def _expire(self, stream: ExpiringStream) -> None:
        self.remove(stream)
        stream.end(stop=False)
