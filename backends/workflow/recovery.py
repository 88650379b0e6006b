"""Takes over workflow runs whose worker died: at startup, periodically, and before each workflow tool call."""

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

_CHECK_INTERVAL: Final = 60.0


class Recovery:
    """Finds interrupted runs and hands them to the runner."""

    def __init__(self, host: Host, runner: Runner, silence_timeout: float) -> None:
        """`silence_timeout`: longest time that an active run can go without writing a log line."""
        self._host = host
        self._runner = runner
        self._silence_timeout = silence_timeout
        self._next_check: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def run_forever(self) -> None:
        """Recover the runs of all tenants at startup, then check periodically for runs without recent log lines.

        The periodic check ignores runs with recent log lines: a worker that does not answer may be a process of the
        same gateway that is still draining.
        """
        recover = self.ensure_recovered
        while True:
            with _log_errors():
                for tenant in await self._host.tenants():
                    with _log_errors():
                        await recover(tenant)
            recover = self._recover_silent
            await asyncio.sleep(_CHECK_INTERVAL)

    async def ensure_recovered(self, tenant: str) -> None:
        """Recover the tenant's runs unless that was done recently. Concurrent callers wait for the first one."""
        if self._is_recent(tenant):
            return
        async with self._lock(tenant):
            if not self._is_recent(tenant):
                await self._recover(tenant, 0.0)
                self._next_check[tenant] = time.monotonic() + _CHECK_INTERVAL

    async def _recover_silent(self, tenant: str) -> None:
        async with self._lock(tenant):
            await self._recover(tenant, self._silence_timeout)

    def _lock(self, tenant: str) -> asyncio.Lock:
        return self._locks.setdefault(tenant, asyncio.Lock())

    def _is_recent(self, tenant: str) -> bool:
        return time.monotonic() < self._next_check.get(tenant, 0.0)

    async def _recover(self, tenant: str, silent_for: float) -> None:
        store = self._host.store(Caller(tenant, "workflow", "service"))
        for run in await run_store.list_running(store, silent_for):
            if self._runner.active_run(run.run_id) is not None or await registry.is_worker_alive(
                self._host, run.worker
            ):
                continue
            if await run_store.claim(store, run, self._host.bus.worker):
                await self._runner.take_over(store, run)


@contextmanager
def _log_errors() -> Generator[None]:
    """Log an exception and continue: an unreadable store must not block the recovery of other tenants."""
    try:
        yield
    except Exception:
        log.exception("workflow recovery failed; retry after %g s", _CHECK_INTERVAL)
