"""Runs a task of a remote server to its end inside the call, for clients that cannot use it.

That is the case if client and server are of different eras, whose tasks do not translate, and if the call itself is a
task of the gateway. `RemoteBackend` uses this module.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, cast

from mcp.types import CLIENT_CAPABILITIES_META_KEY
from msgspec.structs import replace

from gateway.contract import TASKS_EXTENSION, Call, Json, declares_tasks
from gateway.errors import Fault, ForeignError, Kind

MIN_POLL_SECONDS: Final = 0.1
MAX_POLL_SECONDS: Final = 5.0
_CANCEL_SECONDS: Final = 10.0
Era = Literal["modern", "handshake"]
Send = Callable[[Call], Awaitable[Json]]
_cancelling: set["asyncio.Task[None]"] = set()


def passes_tasks(call: Call, era: Era) -> bool:
    """Whether the client can use a task that the server creates for this call."""
    if call.task is not None and call.task.is_detached:
        return False
    if call.client.modern:
        return era == "modern" and declares_tasks(call.client.capabilities)
    return era == "handshake" and "task" in call.params


def adapt_to_tasks(call: Call, era: Era, params: Json, *, offers_tasks: bool) -> None:
    """Change the params of an upstream request so that a tool that only runs as a task can be called."""
    if call.method != "tools/call":
        if era == "modern" and not call.client.modern:
            _declare_tasks(params)
        return
    if era == "handshake":
        if call.route is not None and call.route.has_upstream_tasks and call.route.task_support == "required":
            params.setdefault("task", {})
    elif offers_tasks and (not call.client.modern or (call.task is not None and call.task.is_detached)):
        _declare_tasks(params)


def _declare_tasks(params: Json) -> None:
    meta = cast("Json", params["_meta"])
    capabilities = cast("Json", meta.get(CLIENT_CAPABILITIES_META_KEY) or {})
    extensions: Json = {**(capabilities.get("extensions") or {}), TASKS_EXTENSION: {}}
    meta[CLIENT_CAPABILITIES_META_KEY] = {**capabilities, "extensions": extensions}


async def complete_task(call: Call, era: Era, result: Json, send: Send) -> Json:
    """Return the task for a client that can use it, else wait for its end and return the result of the tool."""
    if call.method != "tools/call" or "content" in result or passes_tasks(call, era):
        return result
    task: Any = result if era == "modern" else result.get("task")
    id: Any = cast("Json", task).get("taskId") if isinstance(task, dict) else None
    if not isinstance(id, str):
        return result  # a tool's own member of that name
    # The wire of the call serves the server's questions; the trace and the caller stay.
    about = replace(call, params={"taskId": id, **({"_meta": call.meta} if call.meta else {})})
    try:
        if era == "handshake":
            return await send(replace(about, method="tasks/result"))
        return await _poll(about, cast("Json", task), send)
    except asyncio.CancelledError:
        _cancel_in_background(replace(about, method="tasks/cancel"), send)
        raise


async def _poll(call: Call, task: Json, send: Send) -> Json:
    get = replace(call, method="tasks/get")
    while True:
        interval: Any = task.get("pollIntervalMs")
        seconds = interval / 1000 if isinstance(interval, int | float) else 1.0
        await asyncio.sleep(min(max(seconds, MIN_POLL_SECONDS), MAX_POLL_SECONDS))
        task = await send(get)
        match task.get("status"):
            case "completed":
                return cast("Json", task.get("result") or {})
            case "failed":
                error = cast("Json", task.get("error") or {})
                raise ForeignError(error.get("code", -32603), str(error.get("message", "")), error.get("data"))
            case "cancelled":
                raise Fault(Kind.CANCELLED, "The server cancelled this task.")
            case "input_required":
                requests = cast("dict[str, Json]", task.get("inputRequests") or {})
                if requests:
                    answers = await call.wire.ask(requests)
                    update = {**call.params, "inputResponses": answers}
                    await send(replace(call, method="tasks/update", params=update))
            case _:
                pass


def _cancel_in_background(call: Call, send: Send) -> None:
    async def cancel() -> None:
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await send(call)
        except (Fault, ForeignError, TimeoutError):
            return

    task = asyncio.create_task(cancel())
    _cancelling.add(task)
    task.add_done_callback(_cancelling.discard)
