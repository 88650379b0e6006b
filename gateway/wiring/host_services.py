"""Services behind `HostServices`: calls from modules to other tools, and background tasks."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import MODERN, Call, Caller, ClientProfile, Handler, Json, NullWire, Record, ToolTraits
from gateway.edge.correlation import correlation_id, new_id, trace_context
from gateway.state.tenants import Tenant
from gateway.upstream.host import CURRENT_CALL


class InternalCalls:
    """Calls from modules to other tools, through all stages and within the endpoint of the caller's credential."""

    def __init__(
        self,
        catalogue: Catalogue,
        path: Handler,
        tenant: Callable[[str], Tenant | None],
        is_valid: Callable[[Caller], Awaitable[bool]],
    ) -> None:
        self._catalogue = catalogue
        self._path = path
        self._tenant = tenant
        self._is_valid = is_valid

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        view = self._catalogue.view(caller, caller.resource)
        route = view.tools.get(tool) if view else None
        params: Json = {"name": tool, "arguments": arguments, "_meta": meta}
        id = correlation_id({}, meta) if meta else new_id()
        trace = trace_context({}, meta)
        # There is no request body: measure the arguments, so that the size limits apply to internal calls too.
        size = len(json.dumps(arguments))
        if not trace and (here := CURRENT_CALL.get(None)) is not None and here.position is not None:
            trace = {"traceparent": here.position.traceparent}
        call = Call(
            id=id,
            caller=caller,
            method="tools/call",
            params=params,
            client=ClientProfile(MODERN, {}),
            wire=NullWire(),
            record=Record(),
            route=route,
            endpoint=caller.resource,
            body_bytes=size,
            trace=trace,
        )
        # Only lists are returned as bytes; the result of a tool is an object.
        return cast("Json", await self._path(call))

    def has_tool(self, caller: Caller, tool: str) -> bool:
        view = self._catalogue.view(caller, caller.resource)
        return view is not None and tool in view.tools

    def find_tool(self, caller: Caller, tool: str) -> ToolTraits | None:
        view = self._catalogue.view(caller, caller.resource)
        route = view.tools.get(tool) if view is not None else None
        return ToolTraits(route.allows_dry_run, route.may_repeat) if route is not None else None

    async def is_authorized(self, caller: Caller) -> bool:
        tenant = self._tenant(caller.tenant)
        if tenant is None or tenant.suspended:
            return False
        return await self._is_valid(caller)


log = logging.getLogger("gatehouse")


class BackgroundTasks:
    """Runs tasks that nothing awaits; logs their failures and cancels them on shutdown."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # Not wrapped in another coroutine, which would never await `work` if it were cancelled before it starts.
        task = asyncio.create_task(work, name=work.__qualname__)
        self._running.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("background task %s: failed; it is not restarted", task.get_name(), exc_info=failure)

    async def cancel_all(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
