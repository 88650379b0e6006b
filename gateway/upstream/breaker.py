"""Circuit breaker: rejects calls at once while an upstream server keeps failing."""

import time
from collections.abc import Callable
from typing import Final, Literal

from gateway.errors import Fault, Kind

FAILURE_THRESHOLD: Final = 5
OPEN_SECONDS: Final = 10.0

State = Literal["closed", "open", "half-open"]


class Breaker:
    """Closed until `FAILURE_THRESHOLD` consecutive failures, then open, then half-open: one trial call at a time.

    A successful call closes the circuit by dropping the breaker (`RemoteBackend`).
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._open_until = 0.0
        self._trial_running = False
        self.failures = 0

    @property
    def state(self) -> State:
        if self.failures < FAILURE_THRESHOLD:
            return "closed"
        return "open" if self._clock() < self._open_until else "half-open"

    def enter(self) -> bool:
        """Return whether this call is the trial call, which must call `end_trial` when it ends, whatever its outcome.

        Raises `Fault(UNAVAILABLE)` while the circuit is open, and while another trial call runs.
        """
        if self.failures < FAILURE_THRESHOLD:
            return False
        remaining = self._open_until - self._clock()
        if remaining > 0 or self._trial_running:
            wait = max(1.0, round(remaining, 1))
            message = f"{self._name} keeps failing; its circuit breaker is open. Try again later."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=wait)
        self._trial_running = True
        return True

    def record_failure(self) -> None:
        """Count a failure, also of a call that began before the circuit opened. Does not end the trial call."""
        self.failures += 1
        if self.failures >= FAILURE_THRESHOLD:
            self._open_until = self._clock() + OPEN_SECONDS

    def end_trial(self) -> None:
        """Allow the next trial call: at once if this one did not fail, else when the circuit is half-open again."""
        self._trial_running = False
