"""Rate limits by client address for plain routes, with slowapi, and shared between processes through Redis if set."""

from collections.abc import Awaitable, Callable
from typing import Any

import limits
from fastapi import Request
from slowapi import Limiter
from slowapi.errors import RateLimitExceeded

from gateway.edge.client_address import address_group
from gateway.errors import Fault, Kind

Gate = Callable[[Request], Awaitable[None]]
"""Awaited before a route; raises `Fault(RATE_LIMITED)` over the limit."""
SharedCounter = Callable[[str, float, float], Awaitable[float]]
"""(key, amount, seconds) -> seconds to wait, 0 if the request is within the limit or cannot be counted."""


class IpRateLimiter:
    """Creates gates for routes. slowapi's middleware is not used: it breaks event streams."""

    def __init__(self, address: Callable[[Request], str], shared: SharedCounter | None = None) -> None:
        self._shared = shared
        # slowapi does not limit an empty key.
        self._key: Callable[[Request], str] = lambda request: address_group(address(request)) or "unknown"
        self._limiter = Limiter(key_func=self._key, key_style="endpoint")

    def gate(self, name: str, rate: str) -> Gate:
        """Create a gate; routes behind gates of the same name share one count."""
        parsed = limits.parse(rate)
        count: Any = self._limiter.shared_limit(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            rate, scope=name
        )

        async def passed(request: Request) -> None:
            if self._shared is not None:
                key = f"route|{name}|{self._key(request)}"
                if (wait := await self._shared(key, parsed.amount, parsed.get_expiry())) > 0:
                    raise _rate_limited(wait)

        # slowapi identifies a limit by the function's name: with equal names each gate would apply all gates' rates.
        passed.__name__ = f"passed_{name}"
        counted: Gate = count(passed)

        async def gate(request: Request) -> None:
            try:
                await counted(request)
            except RateLimitExceeded as exc:
                raise _rate_limited(float(parsed.get_expiry())) from exc

        return gate


def _rate_limited(wait: float) -> Fault:
    return Fault(Kind.RATE_LIMITED, "Too many requests.", retry_after=max(1.0, wait))
