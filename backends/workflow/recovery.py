"""Runs whose worker died are taken over: at the start, ever after, and before a call looks at them."""

import asyncio
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from backends.gox import registry
from backends.workflow import run_store
from backends.workflow.runner import Runner
from gateway.contract import Caller, Host

log = logging.getLogger("gatehouse.workflow")

_LOOK_AGAIN: Final = 60.0


class Recovery:
    def __init__(self, home: Host, runner: Runner, silence: float) -> None:
        """`silence`: longer than that no run that goes on says nothing in its log."""
        self._home = home
        self._runner = runner
        self._silence = silence
        self._looked: dict[str, float] = {}
        self._looking: dict[str, asyncio.Lock] = {}

    async def of_all(self) -> None:
        """For as long as the gateway runs: every tenant's. At the start at once; later only what has fallen silent,
        since a worker that cannot be asked may be a process beside this one that is about to leave."""
        look = self.of
        while True:
            with _going_on():
                for tenant in await self._home.tenants():
                    with _going_on():
                        await look(tenant)
            look = self._of_silent
            await asyncio.sleep(_LOOK_AGAIN)

    async def of(self, tenant: str) -> None:
        """Whoever comes while somebody else is at it waits, and finds the runs taken over."""
        if self._seen(tenant):
            return
        async with self._turn(tenant):
            if not self._seen(tenant):
                await self._recover(tenant, 0.0)
                self._looked[tenant] = time.monotonic() + _LOOK_AGAIN

    async def _of_silent(self, tenant: str) -> None:
        async with self._turn(tenant):
            await self._recover(tenant, self._silence)

    def _turn(self, tenant: str) -> asyncio.Lock:
        return self._looking.setdefault(tenant, asyncio.Lock())

    def _seen(self, tenant: str) -> bool:
        return time.monotonic() < self._looked.get(tenant, 0.0)

    async def _recover(self, tenant: str, silent_for: float) -> None:
        store = self._home.store(Caller(tenant, "workflow", "service"))
        for run in await run_store.running(store, silent_for):
            if self._runner.live(run.run_id) is not None or await registry.alive(self._home, run.worker):
                continue
            if await run_store.claim(store, run, self._home.bus.worker):
                await self._runner.take_over(store, run)


@contextmanager
def _going_on() -> Generator[None]:
    """One store that cannot be read must not leave the runs of all others lying."""
    try:
        yield
    except Exception:
        log.exception("interrupted runs could not be looked for")
