"""Limits the open streams per principal, per tenant and per process; a `subscriptions/listen` is one stream.

`LegacyEra` and `ListenHandler` hold a slot for each open stream; the operator API reports the usage.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from gateway.contract import Caller
from gateway.errors import Fault, Kind

StreamKind = Literal["streams", "subscriptions"]


@dataclass(frozen=True, slots=True)
class StreamCaps:
    """Maximum numbers of open streams."""

    principal: int = 8
    tenant: int = 200
    process: int = 2000


class StreamLimits:
    """Counts the open streams of this process and enforces `StreamCaps`."""

    def __init__(self, caps: StreamCaps) -> None:
        self._caps = caps
        self._total = 0
        self._tenants: Counter[str] = Counter()
        self._principals: Counter[str] = Counter()
        self._kinds: Counter[tuple[str, str, StreamKind]] = Counter()

    @contextmanager
    def hold(self, caller: Caller, kind: StreamKind = "streams") -> Generator[None]:
        """Count one open stream of the caller during the block. Raises `Fault(RATE_LIMITED)` at a limit."""
        tenant, principal, caps = caller.tenant, caller.principal, self._caps
        if self._principals[principal] >= caps.principal:
            raise _limit_fault(
                f"You have {caps.principal} open streams, the maximum. Close one before you open another."
            )
        if self._tenants[tenant] >= caps.tenant:
            raise _limit_fault(
                f"Your organisation has {caps.tenant} open streams, the maximum. Close one or try again later."
            )
        if self._total >= caps.process:
            raise _limit_fault("The gateway has reached its maximum of open streams. Try again later.")
        self._total += 1
        self._tenants[tenant] += 1
        self._principals[principal] += 1
        self._kinds[(tenant, principal, kind)] += 1
        try:
            yield
        finally:
            self._total -= 1
            _decrement(self._tenants, tenant)
            _decrement(self._principals, principal)
            _decrement(self._kinds, (tenant, principal, kind))

    def usage(self, tenant: str) -> dict[tuple[str, StreamKind], int]:
        """Return the number of open streams of each principal of a tenant, by kind."""
        return {(principal, kind): count for (owner, principal, kind), count in self._kinds.items() if owner == tenant}


def _decrement(counter: "Counter[Any]", key: Any) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _limit_fault(message: str) -> Fault:
    return Fault(Kind.RATE_LIMITED, message, retry_after=5.0)
