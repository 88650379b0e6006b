"""A backend that keeps failing is left alone for a while: callers are told at once instead of waiting."""

import time
from collections.abc import Callable
from typing import Final, Literal

from gateway.errors import Fault, Kind

FAILURES: Final = 5
PAUSE_SECONDS: Final = 10.0

State = Literal["closed", "open", "half-open"]


class Breaker:
    """Closed, open for a while after so many failures in a row, then half open: one call may try."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._until = 0.0
        self._trying = False
        self.failures = 0

    @property
    def state(self) -> State:
        if self.failures < FAILURES:
            return "closed"
        return "open" if self._clock() < self._until else "half-open"

    def enter(self) -> bool:
        """Whether this call is the one that tries, and has to say `left` when it is over, whatever became of it.

        Raises `Fault(UNAVAILABLE)` while it is open, or while another call tries.
        """
        if self.failures < FAILURES:
            return False
        left = self._until - self._clock()
        if left > 0 or self._trying:
            wait = max(1.0, round(left, 1))
            raise Fault(Kind.UNAVAILABLE, f"{self._name} keeps failing; it is left alone for now.", retry_after=wait)
        self._trying = True
        return True

    def failed(self) -> None:
        """Also by a call that began before it opened: that one says nothing of the one that tries."""
        self.failures += 1
        if self.failures >= FAILURES:
            self._until = self._clock() + PAUSE_SECONDS

    def left(self) -> None:
        """The call that tried is over: unless it failed, the next may try."""
        self._trying = False
