"""How often one address may come to the plain routes: counted by slowapi, and by all processes where they share."""

from collections.abc import Awaitable, Callable
from typing import Any

import limits
from fastapi import Request
from slowapi import Limiter
from slowapi.errors import RateLimitExceeded

from gateway.edge.client_address import neighbour
from gateway.errors import Fault, Kind

Gate = Callable[[Request], Awaitable[None]]
"""Lets a request pass, or raises `Fault(RATE_LIMITED)`."""
Shared = Callable[[str, float, float], Awaitable[float]]
"""Takes one of (key's) so many in so many seconds: 0, or how long to wait. Answers 0 when nobody can count."""


class IpRateLimiter:
    """`address` tells who comes. Use a gate in front of a route: slowapi's middleware would break event streams."""

    def __init__(self, address: Callable[[Request], str], shared: Shared | None = None) -> None:
        self._shared = shared
        # Never empty, or nothing is limited.
        self._key: Callable[[Request], str] = lambda request: neighbour(address(request)) or "unknown"
        self._limiter = Limiter(key_func=self._key, key_style="endpoint")

    def gate(self, name: str, rate: str) -> Gate:
        """Everything behind gates of one name is counted together."""
        parsed = limits.parse(rate)
        count: Any = self._limiter.shared_limit(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            rate, scope=name
        )

        async def passed(request: Request) -> None:
            if self._shared is not None:
                key = f"route|{name}|{self._key(request)}"
                if (wait := await self._shared(key, parsed.amount, parsed.get_expiry())) > 0:
                    raise _too_many(wait)

        # slowapi knows a limit's function by its name: under one name every gate would be held to all gates' rates.
        passed.__name__ = f"passed_{name}"
        counted: Gate = count(passed)

        async def gate(request: Request) -> None:
            try:
                await counted(request)
            except RateLimitExceeded as exc:
                raise _too_many(float(parsed.get_expiry())) from exc

        return gate


def _too_many(wait: float) -> Fault:
    return Fault(Kind.RATE_LIMITED, "Too many requests.", retry_after=max(1.0, wait))
