"""Limits how many runs are processed concurrently, in total and per tenant."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class RunSlots:
    """Grants `count` slots in total. One tenant holds at most half of them, rounded up."""

    def __init__(self, count: int) -> None:
        self._total = asyncio.Semaphore(count)
        self._tenant_limit = (count + 1) // 2
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def acquire(self, tenant: str) -> AsyncGenerator[None]:
        own = self._tenants.setdefault(tenant, asyncio.Semaphore(self._tenant_limit))
        # Acquire the tenant's slot first: a call that waits for it must not hold a global slot.
        async with own, self._total:
            yield
