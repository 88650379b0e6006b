"""Handles the requests about tasks: `tasks/get`, `tasks/update` and `tasks/cancel` of 2026-07-28, and `tasks/get`,
`tasks/result`, `tasks/list` and `tasks/cancel` of 2025-11-25.

Only the owner of a task, the principal that made the call, can use its id. The policies decide on the tool with the
arguments of the original call, so a caller that lost access to the tool loses access to the task.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from msgspec.structs import replace

from gateway.contract import HANDSHAKE_TASKS_SINCE, TASKS_EXTENSION, Call, Json, Result, Route, declares_tasks
from gateway.errors import Fault, ForeignError
from gateway.protocol.downgrade import downgrade
from gateway.protocol.sealed_tokens import SealedCursorCodec
from gateway.state.task_rows import TaskRow
from gateway.tasks.descriptions import describe, detailed, final_result, kept_notes, with_related_task
from gateway.tasks.events import TaskEvents
from gateway.tasks.running import TaskService
from gateway.tasks.upstream_tasks import UpstreamTasks, unknown_task

PAGE_SIZE: Final = 20
LIST_SECONDS: Final = 5.0
"""How long a list waits for the status of a task at its server."""
_POLL_SECONDS: Final = 0.5
_MISSING_CAPABILITY: Final = -32021
_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602


class TaskRequests:
    """The handler of all requests about tasks. `authorize` raises if the policies deny the original call now."""

    def __init__(
        self,
        service: TaskService,
        upstream: UpstreamTasks,
        events: TaskEvents,
        cursors: SealedCursorCodec,
        authorize: Callable[[Call, Json], None],
        wake: Callable[[TaskRow], None],
        find_route: Callable[[Call], Route | None],
    ) -> None:
        """`wake` tells the worker of a task that a client cancelled or answered it."""
        self._service = service
        self._upstream = upstream
        self._events = events
        self._cursors = cursors
        self._authorize = authorize
        self._wake = wake
        self._find_route = find_route

    async def __call__(self, call: Call) -> Result:
        if call.client.modern:
            if not declares_tasks(call.client.capabilities):
                data: Json = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
                raise ForeignError(
                    _MISSING_CAPABILITY, "This request requires a client with the tasks extension.", data
                )
        elif call.client.version < HANDSHAKE_TASKS_SINCE:
            raise ForeignError(_METHOD_NOT_FOUND, "Method not found", call.method)
        if call.method == "tasks/list":
            return await self._list(call)
        call, row = await self._find(call)
        match call.method:
            case "tasks/get":
                return await self._get(call, row)
            case "tasks/update":
                return await self._update(call, row)
            case "tasks/cancel":
                return await self._cancel(call, row)
            case _:
                return await self._result(call, row)

    async def _find(self, call: Call) -> tuple[Call, TaskRow]:
        """Return the task, and the call with the route of the task's tool."""
        reference = self._service.ids.open(call.caller.principal, call.params["taskId"])
        row = await self._service.rows.find(reference.id) if reference is not None else None
        request = self._service.content.open_request(row.id, row.request) if row is not None else None
        if row is None or request is None or row.principal != call.caller.principal:
            raise unknown_task()
        route = self._find_route(replace(call, params=request.params))
        if route is None:
            raise unknown_task()
        # Not before: a request about a task does not count against the limits of its tool.
        call.record.late_route = route
        call = replace(call, route=route)
        self._authorize(call, request.params)
        return call, row

    async def _get(self, call: Call, row: TaskRow) -> Json:
        if row.kind == "upstream":
            return await self._upstream.request(call, row, "tasks/get", {})
        if call.client.modern:
            return detailed(row, self._service.content)
        return self._handshake_task(row)

    def _handshake_task(self, row: TaskRow) -> Json:
        task = describe(row, self._service.content, modern=False)
        if row.state == "completed":
            outcome = cast("Json", self._service.content.open(row.id, "outcome", row.outcome))
            if cast("Json", outcome.get("result") or {}).get("isError"):
                task["status"] = "failed"  # in this revision a result with `isError` is a failed task
        if meta := kept_notes(row, self._service.content):
            task["_meta"] = meta
        return task

    async def _update(self, call: Call, row: TaskRow) -> Json:
        responses = cast("Json", call.params.get("inputResponses") or {})
        if row.kind == "upstream":
            return await self._upstream.request(call, row, "tasks/update", {"inputResponses": responses})
        await self._answer(row, responses)
        return {}

    async def _answer(self, row: TaskRow, responses: Json) -> None:
        """Store answers to open input requests. Unknown keys are ignored, and all keys if the task waits for none."""
        content = self._service.content
        while True:
            requests = cast("Json", content.open(row.id, "input", row.input))
            known = {key: value for key, value in responses.items() if key in requests}
            if row.state != "input_required" or not known:
                return
            answers = {**cast("Json", content.open(row.id, "answers", row.answers)), **known}
            remaining = {key: value for key, value in requests.items() if key not in answers}
            if await self._service.rows.add_answers(
                row.id,
                content.seal(row.id, "answers", answers),
                content.seal(row.id, "input", remaining),
                "input_required" if remaining else "working",
                row.answers,
            ):
                break
            row = await self._reload(row)  # another request answered at the same time
        self._wake(row)

    async def _cancel(self, call: Call, row: TaskRow) -> Json:
        modern = call.client.modern
        if row.kind == "upstream":
            return await self._upstream.request(call, row, "tasks/cancel", {})
        cancelled = not row.is_terminal and await self._service.rows.cancel(row.id)
        if cancelled:
            self._wake(row)
        if modern:
            return {}
        if not cancelled:
            raise ForeignError(_INVALID_PARAMS, f"Cannot cancel the task: it has ended as {row.state}.")
        return describe(await self._wait_until_cancelled(row), self._service.content, modern=False)

    async def _wait_until_cancelled(self, row: TaskRow) -> TaskRow:
        """Wait for the worker of the task; this revision answers with the task as it is after the cancellation."""
        async with asyncio.timeout(30):
            while not row.is_terminal:
                row = await self._next_state(row)
        return row

    # ---- 2025-11-25 only ----

    async def _result(self, call: Call, row: TaskRow) -> Json:
        """Wait until the task has ended. On the way, ask the client what the task asks for."""
        if row.kind == "upstream":
            seconds = self._service.limits.deadline
            return await self._upstream.request(call, row, "tasks/result", {}, seconds)
        while not row.is_terminal:
            if row.state == "input_required":
                row = await self._ask(call, row)
            else:
                row = await self._next_state(row)
        return downgrade(final_result(row, self._service.content), call.client.version, call.id)

    async def _ask(self, call: Call, row: TaskRow) -> TaskRow:
        requests = cast("dict[str, Json]", self._service.content.open(row.id, "input", row.input))
        related = {
            key: {**each, "params": with_related_task(each.get("params") or {}, row.public_id)}
            for key, each in requests.items()
        }
        if not related:
            return await self._next_state(row)
        asking = asyncio.ensure_future(call.wire.ask(related))
        try:
            # Another request about the same task may answer first, or cancel it.
            while not asking.done():
                waiting = asyncio.ensure_future(self._next_state(row))
                await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done() and (found := waiting.result()).state != "input_required":
                    return found
                waiting.cancel()
            await self._answer(row, asking.result())
        finally:
            asking.cancel()
        return await self._reload(row)

    async def _next_state(self, row: TaskRow) -> TaskRow:
        """Wait for a change of the task, and read it again."""
        await self._events.wait(row.public_id, _POLL_SECONDS)
        return await self._reload(row)

    async def _reload(self, row: TaskRow) -> TaskRow:
        found = await self._service.rows.find(row.id)
        if found is None:
            raise unknown_task()
        return found

    async def _list(self, call: Call) -> Json:
        cursor: Any = call.params.get("cursor")
        page = self._cursors.read("tasks/list", cursor) if cursor is not None else 0
        rows = await self._service.rows.list(call.caller.tenant, call.caller.principal, PAGE_SIZE + 1, page * PAGE_SIZE)
        result: Json = {"tasks": await asyncio.gather(*(self._list_item(call, row) for row in rows[:PAGE_SIZE]))}
        if len(rows) > PAGE_SIZE:
            result["nextCursor"] = self._cursors.mint("tasks/list", page + 1)
        return result

    async def _list_item(self, call: Call, row: TaskRow) -> Json:
        """Describe one task; the server of a task that it runs is asked, and if it does not answer, the last known
        status is shown."""
        if row.kind == "upstream" and not row.is_terminal:
            request = self._service.content.open_request(row.id, row.request)
            route = self._find_route(replace(call, params=request.params)) if request is not None else None
            if route is not None:
                with suppress(Fault, ForeignError):
                    return await self._upstream.request(replace(call, route=route), row, "tasks/get", {}, LIST_SECONDS)
        return self._handshake_task(row)
