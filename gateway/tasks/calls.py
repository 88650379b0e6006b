"""Handles `tools/call`: decides whether a call becomes a task, and runs it in the background if it does.

A call becomes a task of the gateway if its tool allows it and its client asked for one (2025-11-25), or declared the
extension and the call takes longer than `tasks.after` (2026-07-28). A server may also answer with a task of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from gateway.contract import (
    HANDSHAKE_TASKS_SINCE,
    Call,
    Handler,
    Json,
    NullWire,
    Record,
    Result,
    Route,
    declares_tasks,
)
from gateway.errors import Fault, ForeignError
from gateway.state.task_rows import TaskRow
from gateway.tasks.content import StoredRequest, restore_caller
from gateway.tasks.running import ManagedTask, TaskService
from gateway.tasks.upstream_tasks import UpstreamTasks, is_created_task
from gateway.tasks.wire import TaskWire, wait_first

log = logging.getLogger("gatehouse.tasks")
_METHOD_NOT_FOUND: Final = -32601


class TaskCalls:
    """The handler of `tools/call`. A call whose client cannot use tasks goes straight to `handler`."""

    def __init__(
        self,
        service: TaskService,
        upstream: UpstreamTasks,
        handler: Handler,
        refuse: Callable[[ForeignError], Handler],
        find_route: Callable[[Call], Route | None],
    ) -> None:
        self._service = service
        self._upstream = upstream
        self._handler = handler
        self._refuse = refuse
        self._find_route = find_route
        self._jobs: set[asyncio.Task[Result]] = set()

    def __call__(self, call: Call) -> Awaitable[Result]:
        client = call.client
        if "task" not in call.params and "extensions" not in client.capabilities:
            return self._handler(call)  # fast path
        if client.modern:
            return self._call_modern(call) if declares_tasks(client.capabilities) else self._handler(call)
        return self._call_handshake(call) if "task" in call.params else self._handler(call)

    async def _call_modern(self, call: Call) -> Result:
        route = call.route
        task = ManagedTask(self._service, call, call.params, "slow")
        if route is None or route.task_support == "forbidden":
            result = await self._handler(replace(call, task=task))
        else:
            result = await self._run(task, call, call.params)
        if is_created_task(result, modern=True) and not task.is_ours(result):
            return await self._upstream.register(call, result)
        return result

    async def _call_handshake(self, call: Call) -> Result:
        route = call.route
        params = {key: value for key, value in call.params.items() if key != "task"}
        if route is None or call.client.version < HANDSHAKE_TASKS_SINCE:
            return await self._handler(replace(call, params=params))
        if route.has_upstream_tasks:
            task = ManagedTask(self._service, call, call.params, "slow")
            result = await self._handler(replace(call, task=task))
            if is_created_task(result, modern=False) and not task.is_ours(result):
                return await self._upstream.register(call, result)
            return result
        if route.task_support == "forbidden":
            return await self._refuse(
                ForeignError(_METHOD_NOT_FOUND, f"Tool {route.exposed!r} does not support tasks.")
            )(call)
        task = ManagedTask(self._service, call, params, "asked")
        return await self._run(task, call, params)

    # ---- tasks of the gateway ----

    async def _run(self, task: ManagedTask, call: Call, params: Json) -> Result:
        """Run the call in a task of its own, and return its result or the description of the task."""
        wire = TaskWire(call, task, task.notes)
        job = self._start(task, replace(call, wire=wire, task=task, params=params))
        after = self._service.limits.after
        try:
            await wait_first(job, task.detached, None if task.is_asked else after)
            while not job.done() and not task.is_detached:
                if wire.is_asking or not await self._try_detach(task, call):
                    await wait_first(job, task.detached, after)
        except asyncio.CancelledError:
            # The client has disconnected or cancelled the request.
            if not task.is_detached:
                job.cancel()
                await asyncio.wait({job})
            raise
        return task.created_result() if task.is_detached else job.result()

    async def _try_detach(self, task: ManagedTask, call: Call) -> bool:
        try:
            return await task.detach()
        except Fault as fault:
            # The call goes on within its connection, as for a client without tasks.
            log.info("task: a slow call cannot become a task: %s", fault.message, extra=call.log_fields)
            return False

    def _start(self, task: ManagedTask, call: Call) -> "asyncio.Task[Result]":
        job = asyncio.create_task(task.run(self._handler, call), name="task")
        task.job = job
        self._jobs.add(job)
        job.add_done_callback(self._finish)
        return job

    def _finish(self, job: "asyncio.Task[Result]") -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # mark as retrieved: the client may have disconnected

    def resume(self, row: TaskRow, request: StoredRequest) -> None:
        """Run a task that this worker has claimed."""
        caller = restore_caller(request.caller)
        call = Call(
            id=request.correlation_id,
            caller=caller,
            method="tools/call",
            params=request.params,
            client=request.client,
            wire=NullWire(),
            record=Record(),
            endpoint=request.endpoint,
            body_bytes=request.body_bytes,
            trace=request.trace,
        )
        call = replace(call, route=self._find_route(call))
        task = ManagedTask(self._service, call, request.params, "taken", row)
        self._service.running[row.id] = task
        self._start(task, replace(call, wire=TaskWire(call, task, task.notes), task=task))

    async def close(self) -> None:
        """Stop all jobs: other replicas take their tasks over."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
