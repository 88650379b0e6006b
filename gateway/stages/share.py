"""Fair shares of a backend: so many calls under way for each tenant and each principal, and a short queue for the rest.

Whoever sends a burst waits in a queue of its own, so that nobody else waits behind it. A principal's turn comes before
its tenant's: no principal can fill its tenant's queue.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind

_MANY: Final = 10_000
Key = tuple[str, str]
"""A backend's namespace, and the tenant or principal."""


@dataclass(frozen=True, slots=True)
class ShareBounds:
    """Calls under way at a time to one backend, and calls that may wait, for each tenant and for each principal."""

    tenant: int
    principal: int
    waiting: int


class Share:
    def __init__(self, bounds: ShareBounds) -> None:
        self._bounds = bounds
        self._tenants = _Gates(bounds.tenant, bounds.waiting)
        self._principals = _Gates(bounds.principal, bounds.waiting)

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        assert call.route is not None
        namespace, caller = call.route.namespace, call.caller
        own = self._principals.at((namespace, caller.principal))
        if own.running < own.most:
            own.running += 1
        else:
            await own.wait()
        try:
            tenants = self._tenants.at((namespace, caller.tenant))
            if tenants.running < tenants.most:
                tenants.running += 1
            else:
                await tenants.wait()
            try:
                return await call_next(call)
            finally:
                tenants.leave()
        finally:
            own.leave()

    def usage(self) -> dict[str, Mapping[Key, tuple[int, int]]]:
        """Calls under way and waiting now, by backend and tenant, and by backend and principal."""
        return {"tenants": self._tenants.counts(), "principals": self._principals.counts()}


class _Gates:
    def __init__(self, most: int, waiting: int) -> None:
        self._most = most
        self._waiting = waiting
        self._gates: dict[Key, _Gate] = {}

    def at(self, key: Key) -> "_Gate":
        gate = self._gates.get(key)
        if gate is None:
            if len(self._gates) > _MANY:
                self._gates = {key: gate for key, gate in self._gates.items() if gate.running or gate.queue}
            gate = self._gates[key] = _Gate(self._most, self._waiting)
        return gate

    def counts(self) -> Mapping[Key, tuple[int, int]]:
        return {key: (gate.running, len(gate.queue)) for key, gate in self._gates.items() if gate.running or gate.queue}


class _Gate:
    __slots__ = ("most", "queue", "running", "waiting")

    def __init__(self, most: int, waiting: int) -> None:
        self.most = most
        self.waiting = waiting
        self.running = 0
        self.queue: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """For a place that somebody leaves. Raises `Fault(RATE_LIMITED)` when too many wait already."""
        if len(self.queue) >= self.waiting:
            told = "Too many of your calls are under way at this backend. Wait for some of them."
            raise Fault(Kind.RATE_LIMITED, told, retry_after=1.0, details={"waiting": self.waiting})
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # its turn came as it left: the next one's
            elif turn in self.queue:
                self.queue.remove(turn)
            raise

    def leave(self) -> None:
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)  # the place is handed over, not freed
                return
        self.running -= 1
