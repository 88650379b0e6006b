"""Who is connected, and the one coarse clock that asks every connection whether its time is up."""

import asyncio
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from gateway.edge.client_address import neighbour
from gateway.edge.request_limits import EdgeLimits


class TimedConnection(Protocol):
    """A connection that can be asked whether its time is up."""

    def check(self, now: float, elapsed: float) -> None: ...


def _nobody(_address: str) -> bool:
    return False


class ConnectionRegistry:
    """The connections of this process. It ticks only while there are any.

    `exempt` names the addresses, such as a trusted proxy's, that many clients share.
    """

    def __init__(self, exempt: Callable[[str], bool] = _nobody, tick: float = 0.5) -> None:
        self.refusals: Counter[int] = Counter()
        """How many requests and connections were refused before the app, by HTTP status."""
        self._exempt = exempt
        self._tick = tick
        self._members: dict[TimedConnection, str] = {}
        self._per_address: Counter[str] = Counter()
        self._ticking = False
        self._last = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def admit(self, connection: TimedConnection, address: str, limits: EdgeLimits) -> bool:
        """Count the connection in, unless there are too many; `address` is empty for a local socket."""
        if len(self._members) >= limits.max_connections:
            return False
        key = neighbour(address)
        most = limits.max_connections_per_address
        if key and 0 < most <= self._per_address[key] and not self._exempt(address):
            return False
        self._members[connection] = key
        self._per_address[key] += 1
        if not self._ticking:
            self._ticking, self._last = True, monotonic()
            self._arm()
        return True

    def leave(self, connection: TimedConnection) -> None:
        """Count it out. One that was never admitted may leave too."""
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
