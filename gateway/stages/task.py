"""The task stage: stores the task that a client asked for, once the policies have allowed the call.

A call that cannot become a task passes. Everything after this stage runs without the client.
"""

from collections.abc import Awaitable
from dataclasses import replace as replace_fields

from msgspec.structs import replace

from gateway.contract import Call, Handler, Result, TaskControl


class Task:
    """Gives a call that may become a task the timeout of tasks."""

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        task = call.task
        return call_next(call) if task is None else self._create(task, call, call_next)

    async def _create(self, task: TaskControl, call: Call, call_next: Handler) -> Result:
        route = call.route
        assert route is not None
        if route.task_support != "forbidden":
            call = replace(call, route=replace_fields(route, timeout=task.timeout))
        await task.create()
        return await call_next(call)
