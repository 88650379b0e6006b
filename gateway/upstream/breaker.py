"""Circuit breakers of a remote backend: they reject calls at once while a server keeps failing.

No tenant may make a server unavailable to another. The breaker of an address concerns all tenants, so it opens only by
evidence that one tenant cannot produce alone: connection failures seen by two tenants, or a failed probe of the
gateway. The breaker of a tenant counts all failures of its own calls, such as timeouts, and rejects only its calls.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Literal, NamedTuple

from gateway.errors import Fault, ForeignError, Kind

log = logging.getLogger("gatehouse.upstream")

FAILURE_THRESHOLD: Final = 5
OPEN_SECONDS: Final = 10.0
TRIAL_WAIT_SECONDS: Final = 1.0
"""How long a call waits for the gateway's probe while a breaker is half-open."""
_WITNESSES: Final = 2
"""Number of tenants that must have seen connection failures before they count for everyone."""

BreakerState = Literal["closed", "open", "half-open"]


class ConnectionFailed(Fault):
    """The server could not be reached, or its connection broke: DNS, TLS, refused, reset, or its process ended."""

    def __init__(self, message: str) -> None:
        super().__init__(Kind.UNAVAILABLE, message)


class _Breaker:
    """Consecutive failures, and until when calls are rejected."""

    def __init__(self) -> None:
        self.failures = 0
        self.witnesses: set[str] = set()
        self.open_until: float | None = None
        """Set while the breaker is open or half-open."""

    def trip(self, now: float) -> None:
        self.open_until = now + OPEN_SECONDS

    def state(self, now: float) -> BreakerState:
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half-open"


class FailureCounts(NamedTuple):
    """Failures recorded when a call began: an outage that breaks many calls counts once."""

    address: int = 0
    tenant: int = 0


_NO_FAILURES: Final = FailureCounts()


class Breakers:
    """The breakers of one backend. A failure domain is an address or a process (`UpstreamTransport.failure_domain`)."""

    def __init__(
        self, name: str, probe: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`probe` checks that the server answers. It raises `Fault` or `TimeoutError` if not; a `ForeignError` is an
        answer."""
        self._name = name
        self._probe = probe
        self._clock = clock
        self._addresses: dict[Hashable, _Breaker] = {}
        self._tenants: dict[tuple[Hashable, str], _Breaker] = {}
        self._trials: dict[Hashable, asyncio.Task[bool]] = {}

    @property
    def is_clear(self) -> bool:
        """Whether no failure is recorded, so that `admit` need not be asked."""
        return not self._addresses and not self._tenants

    async def admit(self, domain: Hashable, tenant: str) -> FailureCounts:
        """Let a call pass. While a breaker is half-open, wait for the gateway's own probe; no call is the trial.

        Raises `Fault(UNAVAILABLE)` while a breaker is open, and if the probe fails or takes longer than
        `TRIAL_WAIT_SECONDS`.
        """
        await self._pass(self._addresses.get(domain), domain, f"{self._name} keeps failing")
        await self._pass(
            self._tenants.get((domain, tenant)), domain, f"This tenant's calls to {self._name} keep failing"
        )
        address, own = self._addresses.get(domain), self._tenants.get((domain, tenant))
        return FailureCounts(address.failures if address else 0, own.failures if own else 0)

    async def _pass(self, breaker: _Breaker | None, domain: Hashable, reason: str) -> None:
        if breaker is None or breaker.open_until is None:
            return
        remaining = breaker.open_until - self._clock()
        if remaining > 0:
            raise _refusal(reason, remaining)
        trial = self._trials.get(domain)
        if trial is None:
            trial = self._trials[domain] = asyncio.create_task(self._run_trial(domain))
            trial.add_done_callback(lambda _: self._trials.pop(domain, None))
        await asyncio.wait((trial,), timeout=TRIAL_WAIT_SECONDS)
        if not trial.done():
            raise _refusal(reason, TRIAL_WAIT_SECONDS)
        if trial.cancelled() or not trial.result():
            raise _refusal(reason, OPEN_SECONDS)

    async def _run_trial(self, domain: Hashable) -> bool:
        try:
            await self._probe()
        except ForeignError:
            pass
        except (Fault, TimeoutError) as error:
            log.warning("upstream %s: probe failed (%r); calls are rejected for %g s", self._name, error, OPEN_SECONDS)
            self._addresses.setdefault(domain, _Breaker()).trip(self._clock())
            return False
        except Exception:  # whatever it was, the next call must get another trial
            log.exception("upstream %s: unexpected exception in a probe; the next call probes again", self._name)
            return False
        now = self._clock()
        self._addresses.pop(domain, None)
        for key, breaker in list(self._tenants.items()):
            if key[0] == domain and breaker.state(now) == "half-open":
                del self._tenants[key]
        return True

    def record_success(self, domain: Hashable, tenant: str) -> None:
        self._addresses.pop(domain, None)
        self._tenants.pop((domain, tenant), None)

    def record_failure(
        self, domain: Hashable, tenant: str, fault: Fault | None, before: FailureCounts = _NO_FAILURES
    ) -> None:
        """Count a failed call; `fault` is None for a timeout, and each timeout counts."""
        own = self._tenants.setdefault((domain, tenant), _Breaker())
        if fault is None or own.failures <= before.tenant:
            own.failures += 1
            if own.failures >= FAILURE_THRESHOLD:
                own.trip(self._clock())
        if isinstance(fault, ConnectionFailed):
            address = self._addresses.setdefault(domain, _Breaker())
            address.witnesses.add(tenant)
            if address.failures <= before.address:
                address.failures += 1
            if address.failures >= FAILURE_THRESHOLD and len(address.witnesses) >= _WITNESSES:
                address.trip(self._clock())

    @property
    def state(self) -> BreakerState:
        """The worst state of the breakers that concern all tenants."""
        now = self._clock()
        states = {breaker.state(now) for breaker in self._addresses.values()}
        return "open" if "open" in states else "half-open" if "half-open" in states else "closed"

    @property
    def open_for_tenants(self) -> int:
        """Number of tenants whose calls are rejected by a breaker of their own."""
        now = self._clock()
        return len({tenant for (_, tenant), breaker in self._tenants.items() if breaker.state(now) == "open"})


def _refusal(reason: str, seconds: float) -> Fault:
    message = f"{reason}; the circuit breaker is open. Try again later."
    return Fault(Kind.UNAVAILABLE, message, retry_after=max(1.0, round(seconds, 1)))
