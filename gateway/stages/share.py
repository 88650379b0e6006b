"""The share stage: limits concurrent calls to a backend per tenant and per principal, with a short queue for each.

A burst waits in its sender's own queue and delays no one else. A call passes its principal's gate before its tenant's,
so a single principal cannot fill the tenant's queue.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind

_MAX_GATES: Final = 10_000
Key = tuple[str, str]
"""A backend's namespace, and the tenant or principal."""


@dataclass(frozen=True, slots=True)
class ShareBounds:
    """Concurrent calls to one backend per tenant and per principal, and how many more may queue."""

    tenant: int
    principal: int
    waiting: int


class Share:
    """Raises `Fault(RATE_LIMITED)` when the queue is full."""

    def __init__(self, bounds: ShareBounds) -> None:
        self._bounds = bounds
        self._tenants = _Gates(bounds.tenant, bounds.waiting)
        self._principals = _Gates(bounds.principal, bounds.waiting)

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        assert call.route is not None
        namespace, caller = call.route.namespace, call.caller
        principal_gate = self._principals.get((namespace, caller.principal))
        if principal_gate.running < principal_gate.capacity:
            principal_gate.running += 1
        else:
            await principal_gate.acquire()
        try:
            tenant_gate = self._tenants.get((namespace, caller.tenant))
            if tenant_gate.running < tenant_gate.capacity:
                tenant_gate.running += 1
            else:
                await tenant_gate.acquire()
            try:
                return await call_next(call)
            finally:
                tenant_gate.release()
        finally:
            principal_gate.release()

    def usage(self) -> dict[str, Mapping[Key, tuple[int, int]]]:
        """Running and waiting calls by (backend, tenant) and by (backend, principal)."""
        return {"tenants": self._tenants.counts(), "principals": self._principals.counts()}


class _Gates:
    def __init__(self, capacity: int, max_waiting: int) -> None:
        self._capacity = capacity
        self._max_waiting = max_waiting
        self._gates: dict[Key, _Gate] = {}

    def get(self, key: Key) -> "_Gate":
        gate = self._gates.get(key)
        if gate is None:
            if len(self._gates) > _MAX_GATES:
                self._gates = {key: gate for key, gate in self._gates.items() if gate.running or gate.queue}
            gate = self._gates[key] = _Gate(self._capacity, self._max_waiting)
        return gate

    def counts(self) -> Mapping[Key, tuple[int, int]]:
        return {key: (gate.running, len(gate.queue)) for key, gate in self._gates.items() if gate.running or gate.queue}


class _Gate:
    __slots__ = ("capacity", "max_waiting", "queue", "running")

    def __init__(self, capacity: int, max_waiting: int) -> None:
        self.capacity = capacity
        self.max_waiting = max_waiting
        self.running = 0
        self.queue: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a free slot. Raises `Fault(RATE_LIMITED)` when the queue is full."""
        if len(self.queue) >= self.max_waiting:
            message = "Too many concurrent calls to this backend. Wait for some of them to finish."
            raise Fault(Kind.RATE_LIMITED, message, retry_after=1.0, details={"waiting": self.max_waiting})
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.release()  # the slot was granted while the call was cancelled: pass it on
            elif slot in self.queue:
                self.queue.remove(slot)
            raise

    def release(self) -> None:
        while self.queue:
            slot = self.queue.popleft()
            if not slot.done():
                slot.set_result(None)  # the slot is handed over, not freed
                return
        self.running -= 1
