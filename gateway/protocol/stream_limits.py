"""Open streams and subscriptions are few: for each principal, each tenant, and this process in all."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from gateway.contract import Caller
from gateway.errors import Fault, Kind

Kinds = Literal["streams", "subscriptions"]


@dataclass(frozen=True, slots=True)
class StreamCaps:
    principal: int = 8
    tenant: int = 200
    process: int = 2000


class StreamLimits:
    def __init__(self, most: StreamCaps) -> None:
        self._most = most
        self._all = 0
        self._tenants: Counter[str] = Counter()
        self._principals: Counter[str] = Counter()
        self._kinds: Counter[tuple[str, str, Kinds]] = Counter()

    @contextmanager
    def held(self, caller: Caller, kind: Kinds = "streams") -> Generator[None]:
        """One open stream of this caller, for as long as the block lasts. Raises `Fault(RATE_LIMITED)`."""
        tenant, principal, most = caller.tenant, caller.principal, self._most
        if self._principals[principal] >= most.principal:
            raise _too_many(f"You have {most.principal} streams open: close one first.")
        if self._tenants[tenant] >= most.tenant:
            raise _too_many(f"Your organisation has {most.tenant} streams open.")
        if self._all >= most.process:
            raise _too_many("The gateway has no room for another stream.")
        self._all += 1
        self._tenants[tenant] += 1
        self._principals[principal] += 1
        self._kinds[(tenant, principal, kind)] += 1
        try:
            yield
        finally:
            self._all -= 1
            _less(self._tenants, tenant)
            _less(self._principals, principal)
            _less(self._kinds, (tenant, principal, kind))

    def usage(self, tenant: str) -> dict[tuple[str, Kinds], int]:
        """What each principal of a tenant holds open now."""
        return {(principal, kind): n for (whose, principal, kind), n in self._kinds.items() if whose == tenant}


def _less(counter: "Counter[Any]", key: Any) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _too_many(message: str) -> Fault:
    return Fault(Kind.RATE_LIMITED, message, retry_after=5.0)
