"""Keeps the tasks of this worker alive, carries out what clients ask of them, and takes over those of dead workers.

One loop per worker. It renews the leases of the tasks that run here, passes on cancellations and answers that any
replica stored, ends tasks whose owner lost access, and looks for tasks that no worker runs.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.contract import MODERN, Call, Caller, ClientProfile, Json, NullWire, Record
from gateway.errors import Fault, Kind
from gateway.state.task_rows import TaskRow
from gateway.tasks.content import StoredRequest, restore_caller
from gateway.tasks.running import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    ManagedTask,
    TaskService,
    failure_outcome,
    lost_fault,
)

log = logging.getLogger("gatehouse.tasks")
_LOOK_SECONDS: Final = 1.0
_AUTHORIZE_SECONDS: Final = 5.0
Resume = Callable[[TaskRow, StoredRequest], None]


class TaskSupervisor:
    """Runs until cancelled. `resume` runs a claimed task here; `is_authorized` checks its owner's credential."""

    def __init__(
        self,
        service: TaskService,
        resume: Resume,
        is_authorized: Callable[[Caller], Awaitable[bool]],
        publish: Callable[[str, Json], Coroutine[Any, Any, None]],
    ) -> None:
        self._service = service
        self._resume = resume
        self._is_authorized = is_authorized
        self._publish = publish
        self._woken = asyncio.Event()
        self._next_heartbeat = 0.0
        self._next_authorization = 0.0
        self._notices: set[asyncio.Task[None]] = set()

    def wake(self, row: TaskRow | None = None) -> None:
        """Look at once, here and, for a task of another worker, there."""
        self._woken.set()
        if row is None or row.worker != self._service.worker:
            notice = asyncio.create_task(self._publish("tasks", {}))
            self._notices.add(notice)
            notice.add_done_callback(self._notices.discard)

    def on_peer_event(self, _: Json) -> None:
        """Another worker stored something for this one, or released a task."""
        self._woken.set()

    def recheck_owners(self) -> None:
        """Check the owners of running tasks at once: a tenant, key or user has changed."""
        self._next_authorization = 0.0
        self._woken.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if self._service.running else HEARTBEAT_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._look()
            except Fault as fault:
                log.warning("tasks: the database cannot be used; retry in %g s: %s", _LOOK_SECONDS, fault.message)
                await asyncio.sleep(_LOOK_SECONDS)
            except Exception:  # the supervisor must survive, or tasks of dead workers are never taken over
                log.exception("tasks: supervision failed; retry in %g s", _LOOK_SECONDS)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        service, now = self._service, time.time()
        running = service.running
        if running:
            for row in await service.rows.requests_for(service.worker):
                if (task := running.get(row.id)) is not None:
                    _carry_out(task, row)
            for task in list(running.values()):
                await task.flush_notes()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_SECONDS
            if running:
                await self._renew()
            await service.rows.delete_expired()
        if running and now >= self._next_authorization:
            self._next_authorization = now + _AUTHORIZE_SECONDS
            await self._check_owners()
        await self._take_over()
        for row in await service.rows.overdue():
            await self._fail(row, Fault(Kind.TIMEOUT, "The task was not released in time."))

    async def _renew(self) -> None:
        service = self._service
        await service.rows.extend_leases(service.worker, time.time() + LEASE_SECONDS)
        existing = await service.rows.ids_of(service.worker)
        for task in [each for id, each in service.running.items() if id not in existing]:
            # It expired, its owner was deleted, or another worker took it over.
            task.end_as = "abandoned"
            _cancel(task)
            service.running.pop(task.row.id if task.row is not None else "", None)

    async def _check_owners(self) -> None:
        """End the tasks of suspended tenants, deleted users and revoked credentials."""
        allowed: dict[Caller, bool] = {}
        for task in list(self._service.running.values()):
            caller = task.call.caller
            if caller not in allowed:
                allowed[caller] = await self._is_authorized(caller)
            if not allowed[caller]:
                task.end_as = Fault(Kind.DENIED, "The task was stopped: its tenant, user or credential lost access.")
                _cancel(task)

    async def _take_over(self) -> None:
        service = self._service
        for row in await service.rows.abandoned():
            request = service.content.open_request(row.id, row.request)
            if request is None:
                await self._fail(row, Fault(Kind.UNAVAILABLE, "The stored call cannot be read any more."))
            elif row.cancelling:
                await service.rows.end_unowned(row, "cancelled", "")
                await service.announce(row.id)
            elif row.sent and not row.repeatable:
                await self._fail(row, lost_fault())
            elif row.deadline_at <= time.time():
                await self._fail(row, Fault(Kind.TIMEOUT, "The task did not end in time."))
            elif not await self._is_authorized(restore_caller(request.caller)):
                await self._fail(row, Fault(Kind.DENIED, "The tenant, user or credential of this task lost access."))
            else:
                claimed = await service.rows.claim(row, service.worker, time.time() + LEASE_SECONDS)
                if claimed is not None:
                    log.info("tasks: %s taken over, attempt %d", claimed.tool, claimed.attempt)
                    self._resume(claimed, request)

    async def _fail(self, row: TaskRow, fault: Fault) -> None:
        await fail_unowned(self._service, row, fault)


async def fail_unowned(service: TaskService, row: TaskRow, fault: Fault) -> bool:
    """End a task that no worker runs as failed. Returns False if another worker was faster."""
    request = service.content.open_request(row.id, row.request)
    _, outcome = failure_outcome(_call_of(row, request), fault, force_error=True)
    ended = await service.rows.end_unowned(row, "failed", service.content.seal(row.id, "outcome", outcome))
    if ended:
        await service.announce(row.id)
    return ended


def _call_of(row: TaskRow, request: StoredRequest | None) -> Call:
    """A call with what an error needs: correlation id and era."""
    caller = Caller(row.tenant, row.principal.partition(":")[2])
    client = request.client if request is not None else ClientProfile(MODERN, {})
    id = request.correlation_id if request is not None else row.id
    return Call(id=id, caller=caller, method="tools/call", params={}, client=client, wire=NullWire(), record=Record())


def _carry_out(task: ManagedTask, row: TaskRow) -> None:
    if row.cancelling:
        task.end_as = "cancelled"
        _cancel(task)
    else:
        task.deliver(row)


def _cancel(task: ManagedTask) -> None:
    if task.job is not None:
        task.job.cancel()


class HeldTasks:
    """Implements `WaitingTasks`: ends the wait of tasks that a stage holds."""

    def __init__(self, service: TaskService, wake: Callable[[], None]) -> None:
        self._service = service
        self._wake = wake

    async def release(self, tenant: str, key: str) -> bool:
        row = await self._service.rows.find_held(tenant, key)
        if row is None:
            return False
        released = await self._service.rows.release(
            row, min(time.time() + self._service.limits.deadline, row.expires_at)
        )
        if released:
            self._wake()
        return released

    async def reject(self, tenant: str, key: str, fault: Fault) -> bool:
        row = await self._service.rows.find_held(tenant, key)
        return row is not None and await fail_unowned(self._service, row, fault)
