"""Tasks of remote servers: their ids are replaced, and requests about them are sent to the server that runs them."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final, cast

from msgspec.structs import replace

from gateway.contract import Bus, Call, Handler, Json, ListChange, NullWire, Record, Result, Route
from gateway.errors import Fault, ForeignError, Kind
from gateway.state.task_rows import TERMINAL, TaskRow, TaskState
from gateway.tasks.content import restore_caller, store_call
from gateway.tasks.descriptions import with_related_task
from gateway.tasks.ids import TaskReference
from gateway.tasks.running import TaskService

TOPIC: Final = "tasks.forward"
WORKER: Final = "worker"
"""The session of a task that lives in a process of one worker."""
_STATES: Final = frozenset({"working", "input_required", "completed", "failed", "cancelled"})
_REQUEST_SECONDS: Final = 60.0
FOLLOW_SECONDS: Final = 1.0
"""Time between two questions for the status of a task that a client listens to."""
_MAX_ID_CHARS: Final = 8192
Guard = Callable[[Call, Handler], Awaitable[Result]]


def is_created_task(result: Result, *, modern: bool) -> bool:
    """Whether the result of a call describes a task instead of the outcome."""
    if not isinstance(result, dict):
        return False
    return result.get("resultType") == "task" if modern else isinstance(result.get("task"), dict)


class UpstreamTasks:
    """Registers tasks of servers for their owners, and forwards requests about them."""

    def __init__(
        self, service: TaskService, guard: Guard, bus: Bus, find_route: Callable[[Call], Route | None]
    ) -> None:
        self._service = service
        self._guard = guard
        self._bus = bus
        self._find_route = find_route
        bus.respond(TOPIC, self._send_for_peer)

    async def register(self, call: Call, result: Result) -> Json:
        """Give the client an id of the gateway's own for a task that the server has created."""
        modern, route = call.client.modern, call.resolved_route
        assert isinstance(result, dict)
        assert route is not None
        task = cast("Json", result if modern else result["task"])
        upstream_id = task.get("taskId")
        if not isinstance(upstream_id, str) or not 0 < len(upstream_id) <= _MAX_ID_CHARS:
            raise Fault(Kind.UNAVAILABLE, f"{route.namespace} created a task without a valid id.")
        session = route.backend.task_session(call)
        service, now, id = self._service, time.time(), secrets.token_hex(16)
        digest = sha256(session.encode()).hexdigest()[:16] if session else ""
        public_id = service.ids.mint(call.caller.principal, TaskReference(id, route.namespace, route.canonical, digest))
        request = service.content.seal(id, "request", store_call(call, call.params))
        promised = _promised_ttl(task, modern=modern)
        row = TaskRow(
            id=id,
            public_id=public_id,
            tenant=call.caller.tenant,
            principal=call.caller.principal,
            kind="upstream",
            namespace=route.namespace,
            tool=route.canonical,
            state=_state(task),
            created_at=now,
            updated_at=now,
            deadline_at=now + service.limits.ttl,
            ttl=promised,
            expires_at=now + min(max(promised or service.limits.ttl, service.limits.deadline), service.limits.ttl),
            request=request,
            worker=service.worker,
            bytes=len(request),
            upstream=service.content.seal(id, "upstream", {"id": upstream_id, "session": session}),
        )
        try:
            await service.rows.insert(row, service.limits.quota)
        except Fault:
            await self._cancel_refused(call, route, upstream_id, session)
            raise
        shown = self._shown(row, task, modern=modern)
        return shown if modern else {**result, "task": shown}

    async def _cancel_refused(self, call: Call, route: Route, upstream_id: str, session: str) -> None:
        """Cancel a task that its client cannot be given."""
        params: Json = {"taskId": upstream_id}
        request = replace(call, method="tasks/cancel", params=params, upstream_session=session or None, task=None)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await route.backend.send(request)
        except (Fault, ForeignError, TimeoutError):
            return

    # ---- requests about a task ----

    async def request(
        self, call: Call, row: TaskRow, method: str, params: Json, seconds: float = _REQUEST_SECONDS
    ) -> Json:
        """Send a request about the task to its server, and return the answer with the client's id."""
        upstream = cast("Json", self._service.content.open(row.id, "upstream", row.upstream))
        if "id" not in upstream:
            raise unknown_task()
        sent = replace(
            call,
            method=method,
            params={**params, "taskId": upstream["id"], **({"_meta": call.meta} if call.meta else {})},
            upstream_session=upstream["session"] or None,
        )
        try:
            async with asyncio.timeout(seconds):
                if upstream["session"] == WORKER and row.worker != self._service.worker:
                    result = await self._send_to_worker(row, sent, seconds)
                else:
                    assert call.route is not None
                    result = await call.route.backend.send(sent)
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, f"No answer within {seconds:g} s.") from exc
        return await self._rewrite(call, row, method, result)

    async def _rewrite(self, call: Call, row: TaskRow, method: str, result: Json) -> Json:
        modern = call.client.modern
        if method == "tasks/result":
            return with_related_task(await self._check(call, result), row.public_id)
        if "taskId" not in result:
            return result
        state = _state(result)
        if state != row.state:
            await self._service.rows.set_upstream_state(row.id, state=state)
        inner: Any = result.get("result")
        if modern and isinstance(inner, dict):
            result = {**result, "result": await self._check(call, cast("Json", inner))}
        return self._shown(row, result, modern=modern)

    def _shown(self, row: TaskRow, task: Json, *, modern: bool) -> Json:
        """The task as the server describes it, with the client's id and a time to live that the gateway can keep."""
        shown = {**task, "taskId": row.public_id}
        if row.ttl is None or row.ttl > self._service.limits.ttl:
            shown["ttlMs" if modern else "ttl"] = int(self._service.limits.ttl * 1000)
        return shown

    async def _check(self, call: Call, result: Json) -> Json:
        """Apply to a tool's result what applies to every result of a call: size, media types, cleaning, URIs."""
        route = call.route
        assert route is not None

        async def give(_: Call) -> Result:
            return route.rewrite(result) if route.rewrite is not None else result

        return cast("Json", await self._guard(call, give))

    # ---- tasks in a process of another worker ----

    async def _send_to_worker(self, row: TaskRow, call: Call, seconds: float) -> Json:
        payload: Json = {"id": row.id, "method": call.method, "params": call.params}
        try:
            answer = await self._bus.request(row.worker, TOPIC, payload, timeout=seconds)
        except Fault as fault:
            raise Fault(
                Kind.UNAVAILABLE, "The process that ran this task has stopped. Make the call again.", retryable=True
            ) from fault
        if "error" in answer:
            error = cast("Json", answer["error"])
            raise ForeignError(error["code"], error["message"], error.get("data"))
        return cast("Json", answer["result"])

    async def _send_for_peer(self, payload: Json) -> Json:
        row = await self._service.rows.find(payload["id"])
        request = self._service.content.open_request(row.id, row.request) if row is not None else None
        if row is None or request is None:
            raise unknown_task()
        call = Call(
            id=request.correlation_id,
            caller=restore_caller(request.caller),
            method="tools/call",
            params=request.params,
            client=request.client,
            wire=NullWire(),
            record=Record(),
            endpoint=request.endpoint,
            trace=request.trace,
        )
        route = self._find_route(call)
        if route is None:
            raise unknown_task()
        upstream = cast("Json", self._service.content.open(row.id, "upstream", row.upstream))
        call = replace(
            call,
            route=route,
            method=payload["method"],
            params={**payload["params"], "taskId": upstream["id"]},
            upstream_session=WORKER,
        )
        try:
            return {"result": await route.backend.send(call)}
        except ForeignError as exc:
            return {"error": {"code": exc.code, "message": exc.message, "data": exc.data}}

    # ---- notifications ----

    async def follow(self, call: Call, ids: frozenset[str]) -> None:
        """Announce changes of these tasks of servers until all have ended; for a client that listens to them."""
        while ids:
            ended = {id for id in ids if not await self._look_at(call, id)}
            ids -= ended
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _look_at(self, call: Call, public_id: str) -> bool:
        """Ask the server for the status of a task, and announce it if it changed. Returns whether to ask again."""
        service = self._service
        reference = service.ids.open(call.caller.principal, public_id)
        row = await service.rows.find(reference.id) if reference is not None else None
        if row is None or row.kind != "upstream" or row.is_terminal:
            return False
        request = service.content.open_request(row.id, row.request)
        route = self._find_route(replace(call, params=request.params)) if request is not None else None
        if route is None:
            return False
        try:
            task = await self.request(replace(call, route=route), row, "tasks/get", {})
        except (Fault, ForeignError):
            return True
        if _state(task) != row.state:
            shown = {key: value for key, value in task.items() if key not in ("resultType", "_meta")}
            change = ListChange("task", public_id, row.principal, {"modern": shown, "handshake": shown})
            await service.announce_change(row.namespace, change)
        return _state(task) not in TERMINAL


def unknown_task() -> ForeignError:
    """The error for a task that does not exist, has expired or belongs to someone else."""
    return ForeignError(-32602, "Unknown task: it does not exist, has expired or belongs to another principal.")


def _state(task: Json) -> TaskState:
    status: Any = task.get("status")
    return status if status in _STATES else "working"


def _promised_ttl(task: Json, *, modern: bool) -> float | None:
    value: Any = task.get("ttlMs" if modern else "ttl")
    return float(value) / 1000 if isinstance(value, int | float) and not isinstance(value, bool) else None
