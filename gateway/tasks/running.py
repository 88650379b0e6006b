"""Tasks that this worker runs: `ManagedTask` is the `TaskControl` of a call, `TaskService` what all of them share."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from msgspec.structs import replace

from gateway.contract import Call, InputResponse, Json, ListChange, Record, Result
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.responses import RpcError, render_error
from gateway.stages.approve import STATE
from gateway.state.task_rows import TaskQuota, TaskRow, TaskRows, TaskState
from gateway.tasks.content import StoredRequest, TaskContent, store_call
from gateway.tasks.descriptions import created_result, describe
from gateway.tasks.ids import TaskIds, TaskReference
from gateway.tasks.wire import TaskNotes

log = logging.getLogger("gatehouse.tasks")

LEASE_SECONDS: Final = 12.0
"""A worker that has not renewed the lease of its tasks for this long is taken for dead."""
HEARTBEAT_SECONDS: Final = 3.0
Origin = Literal["asked", "slow", "taken"]
"""Why a call is a task: its client asked for one, it took long, or it was taken over from another worker."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Bounds of tasks. Times are in seconds."""

    after: float
    deadline: float
    ttl: float
    quota: TaskQuota


class TaskService:
    """Stores tasks, seals their content and announces their changes."""

    def __init__(
        self,
        rows: TaskRows,
        ids: TaskIds,
        content: TaskContent,
        limits: TaskLimits,
        worker: str,
        announce: Callable[[str, ListChange], Awaitable[None]],
    ) -> None:
        """`announce` passes the change of a task of a namespace to the clients of all workers."""
        self.rows = rows
        self.ids = ids
        self.content = content
        self.limits = limits
        self.worker = worker
        self._announce = announce
        self.running: dict[str, ManagedTask] = {}
        """Detached tasks that run in this worker, by id."""

    def new_row(
        self, call: Call, params: Json, *, ttl: float, state: TaskState, message: str = "", **columns: Any
    ) -> TaskRow:
        """Build the row of a new task of the gateway."""
        route = call.resolved_route
        assert route is not None
        now = time.time()
        id = secrets.token_hex(16)
        request = self.content.seal(id, "request", store_call(call, params))
        reference = TaskReference(id, route.namespace, route.canonical, "")
        values: Json = {
            "public_id": self.ids.mint(call.caller.principal, reference),
            "kind": "managed",
            "worker": self.worker,
            "attempt": 1,
            "lease_until": now + LEASE_SECONDS,
            "repeatable": is_repeatable(call),
            "deadline_at": now + min(self.limits.deadline, ttl),
            "ttl": ttl,
            "expires_at": now + ttl,
            "bytes": len(request),
            "message": self.content.seal_message(id, message),
            **columns,
        }
        return TaskRow(
            id=id,
            tenant=call.caller.tenant,
            principal=call.caller.principal,
            namespace=route.namespace,
            tool=route.canonical,
            state=state,
            created_at=now,
            updated_at=now,
            request=request,
            **values,
        )

    def requested_ttl(self, call: Call) -> float:
        """The time to live that a client of 2025-11-25 asked for, within the limits; else the default."""
        task: Any = call.params.get("task")
        wanted: Any = cast("Json", task).get("ttl") if isinstance(task, dict) else None
        if isinstance(wanted, bool) or not isinstance(wanted, int | float) or wanted <= 0:
            return self.limits.ttl
        return min(max(float(wanted) / 1000, 1.0), self.limits.ttl)

    async def announce(self, id: str) -> None:
        """Tell the owner's open streams, on all workers, that a task changed."""
        row = await self.rows.find(id)
        if row is not None:
            await self.announce_row(row)

    async def announce_row(self, row: TaskRow) -> None:
        details: Json = {
            "modern": describe(row, self.content, modern=True),
            "handshake": describe(row, self.content, modern=False),
        }
        await self.announce_change(row.namespace, ListChange("task", row.public_id, row.principal, details))

    async def announce_change(self, namespace: str, change: ListChange) -> None:
        await self._announce(namespace, change)


class ManagedTask:
    """The task that one call is or may become; implements `TaskControl` and the wire's `InputStore`."""

    def __init__(
        self, service: TaskService, call: Call, params: Json, origin: Origin, row: TaskRow | None = None
    ) -> None:
        self._service = service
        self._call = call
        self._params = params
        self._origin = origin
        self.row = row
        self.notes = TaskNotes()
        self.detached = asyncio.Event()
        if row is not None:
            self.detached.set()
        self._finished = False
        self._held = False
        self._sent = False
        self._lock = asyncio.Lock()
        self._answers: asyncio.Future[dict[str, Json]] | None = None
        self.job: asyncio.Task[Any] | None = None
        self.end_as: Fault | Literal["cancelled", "abandoned"] | None = None
        """Why the supervisor cancelled the job."""

    @property
    def is_detached(self) -> bool:
        return self.detached.is_set()

    @property
    def is_asked(self) -> bool:
        """Whether the client asked for a task."""
        return self._origin == "asked"

    @property
    def call(self) -> Call:
        return self._call

    def is_ours(self, result: Result) -> bool:
        """Whether a result that describes a task describes this one, and not one of the server."""
        return self.row is not None or self._held

    @property
    def timeout(self) -> float:
        limits = self._service.limits
        if self.row is not None:
            return max(1.0, self.row.deadline_at - time.time())
        route = self._call.resolved_route
        own = route.timeout if route is not None else 0.0
        return max(own, min(limits.deadline, self._service.requested_ttl(self._call)))

    async def create(self) -> None:
        if self._origin == "asked":
            await self.detach()

    async def detach(self) -> bool:
        """Store the task: from now on it goes on without its client. Returns False if the call has ended already."""
        async with self._lock:
            if self._finished or self.is_detached:
                return self.is_detached
            service = self._service
            ttl = service.requested_ttl(self._call)
            row = service.new_row(self._call, self._params, ttl=ttl, state="working", sent=self._sent)
            await service.rows.insert(row, service.limits.quota)
            self.row = row
            service.running[row.id] = self
            self.detached.set()
            return True

    async def mark_sent(self) -> None:
        async with self._lock:
            self._sent = True
            if self.row is not None and not await self._update(sent=1):
                raise Fault(Kind.CANCELLED, "Another replica has taken over this task.")

    async def hold(self, *, key: str, message: str, seconds: float) -> Json:
        service, now = self._service, time.time()
        wait = min(seconds, service.limits.ttl)
        if self.row is not None:
            sealed = service.content.seal_message(self.row.id, message)
            await self._update(
                state="held", hold_key=key, message=sealed, worker="", deadline_at=now + wait, sent=0, lease_until=0.0
            )
            self._finished = True
            service.running.pop(self.row.id, None)
            await service.announce(self.row.id)
            return {}
        ttl = max(service.requested_ttl(self._call), wait)
        columns: Json = {"hold_key": key, "worker": "", "attempt": 0, "lease_until": 0.0, "deadline_at": now + wait}
        row = service.new_row(self._call, self._params, ttl=ttl, state="held", message=message, **columns)
        await service.rows.insert(row, service.limits.quota)
        self._finished = self._held = True
        return created_result(row, service.content, modern=self._call.client.modern)

    def created_result(self) -> Json:
        assert self.row is not None
        return created_result(self.row, self._service.content, modern=self._call.client.modern)

    # ---- input ----

    async def request_input(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        assert self.row is not None
        sealed = self._service.content.seal(self.row.id, "input", dict(requests))
        self._answers = asyncio.get_running_loop().create_future()
        message = self._service.content.seal_message(self.row.id, "Waiting for input.")
        if not await self._update(state="input_required", input=sealed, answers="", message=message):
            raise Fault(Kind.CANCELLED, "Another replica has taken over this task.")
        await self._service.announce(self.row.id)
        try:
            async with asyncio.timeout(max(1.0, self.row.expires_at - time.time())):
                answers = await self._answers
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, "The client did not answer the input request in time.") from exc
        await self._update(answers="", message="")
        return answers

    def deliver(self, row: TaskRow) -> None:
        """Pass the client's answers to the call, once all are there."""
        if row.state != "input_required" and self._answers is not None and not self._answers.done():
            self._answers.set_result(self._service.content.open(row.id, "answers", row.answers))

    # ---- running ----

    async def run(self, handler: Callable[[Call], Awaitable[Result]], call: Call) -> Result:
        """Run the call. Once it is detached, its outcome is stored; until then it is returned or raised."""
        try:
            result = await handler(call)
            while self.is_detached and isinstance(result, dict) and result.get("resultType") == "input_required":
                call, result = await self._answer_stage(handler, call, result)
        except asyncio.CancelledError:
            await self._end_cancelled(call)
            raise
        except (Fault, ForeignError) as exc:
            async with self._lock:
                self._finished = True
            if self.row is None:
                raise
            await self._store_failure(call, exc)
            return {}
        except Exception:
            log.exception("task: the call failed in the gateway; the task fails", extra=call.log_fields)
            async with self._lock:
                self._finished = True
            if self.row is None:
                raise
            await self._store_failure(call, Fault(Kind.INTERNAL, "The gateway failed to carry out this request."))
            return {}
        async with self._lock:
            already_stored, self._finished = self._finished, True
        if self.row is not None and not already_stored:
            await self._store("completed", {"result": result})
        return result

    async def _answer_stage(
        self, handler: Callable[[Call], Awaitable[Result]], call: Call, result: Json
    ) -> tuple[Call, Result]:
        """Ask for what a stage requires, such as an approval, and run the call again with the answer.

        A task that was taken over passes the stages a second time; its client cannot repeat the call.
        """
        answers = await call.wire.ask(cast("dict[str, Json]", result.get("inputRequests") or {}))
        response = InputResponse(str(call.record.notes.get(STATE, "")), answers)
        again = replace(call, record=Record(), input_response=response)
        return again, await handler(again)

    async def _end_cancelled(self, call: Call) -> None:
        async with self._lock:
            self._finished = True
        if self.row is None:
            return
        if self.end_as == "cancelled":
            await self._store("cancelled", {})
        elif isinstance(self.end_as, Fault):
            await self._store_failure(call, self.end_as, force_error=True)
        elif self.end_as is None:
            # The gateway stops: another replica, or this one after its restart, decides what becomes of the call.
            self._service.running.pop(self.row.id, None)
            await self._update(lease_until=0.0)

    async def _store_failure(self, call: Call, reason: Fault | ForeignError, *, force_error: bool = False) -> None:
        state, outcome = failure_outcome(call, reason, force_error=force_error)
        await self._store(state, outcome)

    async def _store(self, state: TaskState, outcome: Json) -> None:
        assert self.row is not None
        service, row = self._service, self.row
        service.running.pop(row.id, None)
        sealed = service.content.seal(row.id, "outcome", outcome) if outcome else ""
        if not await service.rows.has_space(row.tenant, len(sealed), service.limits.quota):
            fault = Fault(Kind.TOO_LARGE, "The tenant's tasks keep too much data, so this result was not kept.")
            state, outcome = failure_outcome(self._call, fault, force_error=True)
            sealed = service.content.seal(row.id, "outcome", outcome)
        notes = service.content.seal(row.id, "notes", self.notes.take())
        size = len(row.request) + len(sealed) + len(notes)
        columns: Json = {"state": state, "outcome": sealed, "notes": notes, "bytes": size, "input": "", "answers": ""}
        if not await self._update(**columns, message=self._status_message()):
            log.warning("task: its outcome was dropped, because another worker runs it or it was deleted")
            return
        await service.announce(row.id)

    async def flush_notes(self) -> None:
        """Store progress and messages that arrived since the last time."""
        if self.row is not None and self.notes.is_dirty:
            notes = self._service.content.seal(self.row.id, "notes", self.notes.take())
            await self._update(notes=notes, message=self._status_message())
            await self._service.announce(self.row.id)

    def _status_message(self) -> str:
        assert self.row is not None
        return self._service.content.seal_message(self.row.id, self.notes.status_message)

    async def _update(self, **columns: Any) -> bool:
        assert self.row is not None
        return await self._service.rows.update(self.row.id, self.row.attempt, **columns)


def is_repeatable(call: Call) -> bool:
    """Whether the call may be sent a second time: its tool is declared idempotent, or it has an idempotency key.

    The effect of a remote tool is lowered only by the operator, never by the server's own annotation.
    """
    route = call.resolved_route
    if route is None or route.may_repeat:
        return False
    return route.effect <= 1 or bool(call.meta.get("idempotencyKey"))


def failure_outcome(call: Call, reason: Fault | ForeignError, *, force_error: bool = False) -> tuple[TaskState, Json]:
    """Return how a task ends whose call failed: with a result that has `isError`, or with an error."""
    if force_error and isinstance(reason, Fault):
        code = 503 if call.client.modern else -32603
        data = reason.as_object(correlation_id=call.id, origin="gateway", stage="task", codes={})
        return "failed", {"error": {"code": code, "message": reason.message, "data": data}}
    rendered = render_error(reason, call)
    if isinstance(rendered, RpcError):
        return "failed", {"error": rendered.as_json()}
    return "completed", {"result": rendered}


def lost_fault() -> Fault:
    """The failure of a task whose worker stopped after the call was sent."""
    return Fault(
        Kind.UNAVAILABLE,
        "The gateway process that ran this call has stopped. The call had been sent: it may have happened.",
        retryable=True,
        suggested_fix="Check whether the call took effect before you repeat it.",
    )


def restored_request(content: TaskContent, row: TaskRow) -> StoredRequest | None:
    return content.open_request(row.id, row.request)
