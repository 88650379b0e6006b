"""Registry of open connections: enforces the connection limits and runs one timer for all of them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from gateway.edge.client_address import address_group
from gateway.edge.request_parsing import EdgeLimits


class TimedConnection(Protocol):
    """A connection that applies its own timeouts when checked."""

    def check(self, now: float, elapsed: float) -> None: ...


def _no_address(_address: str) -> bool:
    return False


class ConnectionRegistry:
    """The open connections of this process. Its timer runs only while there are any.

    `exempt` selects addresses without a per-address limit, such as a trusted proxy.
    """

    def __init__(self, exempt: Callable[[str], bool] = _no_address, tick: float = 0.5) -> None:
        self.refusals: Counter[int] = Counter()
        """Requests and connections rejected before the app, by HTTP status."""
        self._exempt = exempt
        self._tick = tick
        self._members: dict[TimedConnection, str] = {}
        self._per_address: Counter[str] = Counter()
        self._ticking = False
        self._last = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def admit(self, connection: TimedConnection, address: str, limits: EdgeLimits) -> bool:
        """Register the connection unless a limit is reached; `address` is empty for a Unix socket."""
        if len(self._members) >= limits.max_connections:
            return False
        key = address_group(address)
        max_per_address = limits.max_connections_per_address
        if key and 0 < max_per_address <= self._per_address[key] and not self._exempt(address):
            return False
        self._members[connection] = key
        self._per_address[key] += 1
        if not self._ticking:
            self._ticking, self._last = True, monotonic()
            self._arm()
        return True

    def remove(self, connection: TimedConnection) -> None:
        """Unregister the connection; does nothing if it was not admitted."""
        key = self._members.pop(connection, None)
        if key is None:
            return
        self._per_address[key] -= 1
        if not self._per_address[key]:
            del self._per_address[key]

    def _arm(self) -> None:
        asyncio.get_running_loop().call_later(self._tick, self._sweep)

    def _sweep(self) -> None:
        if not self._members:
            self._ticking = False
            return
        self._arm()
        now = monotonic()
        elapsed, self._last = now - self._last, now
        for connection in tuple(self._members):
            connection.check(now, elapsed)
