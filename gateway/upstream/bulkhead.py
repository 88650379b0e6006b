"""So many calls at a time to one backend, and so many of one tenant's: the rest wait their turn, a bounded number."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass

from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much there is."""

    calls: int = 64
    calls_per_tenant: int = 48
    """Fewer, so that no tenant can take it all."""
    waiting: int = 256


class Bulkhead:
    def __init__(self, name: str, room: Capacity) -> None:
        self._name = name
        self._room = room
        self._tenants: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._queued: Counter[str] = Counter()
        # No tenant may fill the queue either, by the same measure.
        self._waiting_per_tenant = max(1, room.waiting * room.calls_per_tenant // room.calls)
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def take(self, tenant: str) -> bool:
        """A place at once; false when there is none, and `wait` is the way."""
        if self.in_flight >= self._room.calls or self._tenants.get(tenant, 0) >= self._room.calls_per_tenant:
            return False
        if self._queue and any(other == tenant for other, _ in self._queue):
            return False
        self.step_in(tenant)
        return True

    async def wait(self, tenant: str) -> None:
        """Until there is a place. Raises `Fault(UNAVAILABLE)` when too many wait already."""
        if len(self._queue) >= self._room.waiting or self._queued[tenant] >= self._waiting_per_tenant:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} is busy: too many calls wait for it.", retry_after=1.0)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((tenant, turn))
        self._queued[tenant] += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(tenant)
            else:
                self._unqueue(tenant, turn)
            raise

    def leave(self, tenant: str) -> None:
        """Hand the place to whoever has waited longest and may have it."""
        self.in_flight -= 1
        self._less(self._tenants, tenant)
        if self._queue:
            self._hand_on()

    def step_in(self, tenant: str) -> None:
        """Take a place without asking: for a call that left it only while it waited for a person."""
        self.in_flight += 1
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1

    def _hand_on(self) -> None:
        for place, (tenant, turn) in enumerate(self._queue):
            if self.in_flight >= self._room.calls:
                return
            if self._tenants[tenant] < self._room.calls_per_tenant:
                del self._queue[place]
                self._less(self._queued, tenant)
                self.step_in(tenant)
                turn.set_result(None)
                return

    def _unqueue(self, tenant: str, turn: "asyncio.Future[None]") -> None:
        self._queue.remove((tenant, turn))
        self._less(self._queued, tenant)

    def _less(self, counts: Counter[str], tenant: str) -> None:
        if left := counts[tenant] - 1:
            counts[tenant] = left
        else:
            del counts[tenant]
