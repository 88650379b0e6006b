"""Bulkhead: limits concurrent calls to one backend, in total and by tenant, with a bounded queue."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass

from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits of a bulkhead."""

    calls: int = 64
    calls_per_tenant: int = 48
    """Lower than `calls`, so that one tenant cannot use the whole capacity."""
    waiting: int = 256


class Bulkhead:
    """Slots for calls to one backend. Every acquired slot must be released."""

    def __init__(self, name: str, capacity: Capacity) -> None:
        self._name = name
        self._capacity = capacity
        self._tenants: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._queued: Counter[str] = Counter()
        # One tenant gets the same share of the queue as of the slots.
        self._waiting_per_tenant = max(1, capacity.waiting * capacity.calls_per_tenant // capacity.calls)
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def try_acquire(self, tenant: str) -> bool:
        """Take a slot without waiting. False when none is free: then `wait`."""
        if self.in_flight >= self._capacity.calls or self._tenants.get(tenant, 0) >= self._capacity.calls_per_tenant:
            return False
        if self._queue and any(other == tenant for other, _ in self._queue):
            return False
        self.force_acquire(tenant)
        return True

    async def wait(self, tenant: str) -> None:
        """Wait for a slot and take it. Raises `Fault(UNAVAILABLE)` when the queue is full."""
        if len(self._queue) >= self._capacity.waiting or self._queued[tenant] >= self._waiting_per_tenant:
            message = f"{self._name} is busy: too many calls wait for it. Try again later."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=1.0)
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((tenant, slot))
        self._queued[tenant] += 1
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.release(tenant)
            else:
                self._dequeue(tenant, slot)
            raise

    def release(self, tenant: str) -> None:
        """Free a slot. The slot goes to the longest-waiting call whose tenant is below its limit."""
        self.in_flight -= 1
        self._decrement(self._tenants, tenant)
        if self._queue:
            self._admit_next()

    def force_acquire(self, tenant: str) -> None:
        """Take a slot even above the limit: for a call that released its slot while it waited for user input."""
        self.in_flight += 1
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1

    def _admit_next(self) -> None:
        for index, (tenant, slot) in enumerate(self._queue):
            if self.in_flight >= self._capacity.calls:
                return
            if self._tenants[tenant] < self._capacity.calls_per_tenant:
                del self._queue[index]
                self._decrement(self._queued, tenant)
                self.force_acquire(tenant)
                slot.set_result(None)
                return

    def _dequeue(self, tenant: str, slot: "asyncio.Future[None]") -> None:
        self._queue.remove((tenant, slot))
        self._decrement(self._queued, tenant)

    def _decrement(self, counts: Counter[str], tenant: str) -> None:
        if remaining := counts[tenant] - 1:
            counts[tenant] = remaining
        else:
            del counts[tenant]
