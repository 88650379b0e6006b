"""What modules may ask of the house that they are in.

Work that nobody awaits: kept, logged when it fails, cancelled in the end.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import MODERN, Call, Caller, ClientProfile, Handler, Json, NullWire, Record
from gateway.edge.correlation import correlation_id, new_id, trace_context
from gateway.state.tenants import Tenant
from gateway.upstream.host import CURRENT_CALL


class InternalCalls:
    """Another tool, through the whole `path`; whether there is one; and whether a caller may still be served.

    A credential reaches no more this way than at the endpoint it is for.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        path: Handler,
        tenant: Callable[[str], Tenant | None],
        good: Callable[[Caller], Awaitable[bool]],
    ) -> None:
        self._catalogue = catalogue
        self._path = path
        self._tenant = tenant
        self._good = good

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        view = self._catalogue.view(caller, caller.resource)
        route = view.tools.get(tool) if view else None
        params: Json = {"name": tool, "arguments": arguments, "_meta": meta}
        given = correlation_id({}, meta) if meta else new_id()
        trace = trace_context({}, meta)
        # Made here and not read from a message: they are measured, so that no bound is passed by on the inside.
        size = len(json.dumps(arguments))
        if not trace and (here := CURRENT_CALL.get(None)) is not None and here.position is not None:
            trace = {"traceparent": here.position.traceparent}
        call = Call(
            given,
            caller,
            "tools/call",
            params,
            ClientProfile(MODERN, {}),
            NullWire(),
            Record(),
            route,
            endpoint=caller.resource,
            body_bytes=size,
            trace=trace,
        )
        # Only lists come encoded; a tool's result is an object.
        return cast("Json", await self._path(call))

    def knows(self, caller: Caller, tool: str) -> bool:
        view = self._catalogue.view(caller, caller.resource)
        return view is not None and tool in view.tools

    async def good(self, caller: Caller) -> bool:
        tenant = self._tenant(caller.tenant)
        if tenant is None or tenant.suspended:
            return False
        return await self._good(caller)


log = logging.getLogger("gatehouse")


class BackgroundTasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        # Not wrapped in a coroutine of ours: one that is cancelled before it begins would never await it.
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        # Nobody awaits such a task: what ends it must be seen at least here.
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("a background task failed", exc_info=failure)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
