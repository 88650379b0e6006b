"""How many runs are worked on at once: so many in all, and no tenant takes more than half."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Places:
    def __init__(self, count: int) -> None:
        self._all = asyncio.Semaphore(count)
        self._share = (count + 1) // 2
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def one(self, tenant: str) -> AsyncGenerator[None]:
        own = self._tenants.setdefault(tenant, asyncio.Semaphore(self._share))
        # The tenant's own first: whoever waits for its share must not hold a place that others could use.
        async with own, self._all:
            yield
