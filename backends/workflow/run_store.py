"""Persistent state of a tenant's workflow runs; used by the runner, recovery and the workflow tools."""

import json
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backends.gox import runlog
from gateway.contract import Caller, Json, Store
from gateway.errors import Fault, Kind

_INSERT: Final = text(
    "INSERT INTO workflow_runs (run_id, workflow_id, correlation_id, status, started_at, total_steps, definition,"
    " control, worker) VALUES (:run_id, :workflow_id, :correlation_id, 'running', :at, :total, :definition, :control,"
    " :worker)"
)
_COUNT: Final = text("SELECT COUNT(*) FROM workflow_runs WHERE status = 'running'")
_ONE: Final = text("SELECT * FROM workflow_runs WHERE run_id = :run_id")
_RUNNING: Final = text("SELECT * FROM workflow_runs WHERE status = 'running' ORDER BY started_at")
_SILENT: Final = text(
    "SELECT * FROM workflow_runs r WHERE status = 'running' AND NOT EXISTS"
    " (SELECT 1 FROM workflow_logs l WHERE l.run_id = r.run_id AND l.logged_at > :since) ORDER BY started_at"
)
_CLAIM: Final = text(
    "UPDATE workflow_runs SET worker = :worker, taken_over = taken_over + 1 WHERE run_id = :run_id AND worker = :before"
)
_CANCEL: Final = text("UPDATE workflow_runs SET cancel_requested = 1 WHERE run_id = :run_id AND status = 'running'")
_CANCELED: Final = text("SELECT cancel_requested FROM workflow_runs WHERE run_id = :run_id")
_COMPLETED: Final = text(
    "UPDATE workflow_runs SET completed_steps = :completed, taken_over = 0 WHERE run_id = :run_id AND worker = :worker"
)
_END: Final = text(
    "UPDATE workflow_runs SET status = :status, ended_at = :at, error_code = :code, error_message = :message,"
    " definition = '{}' WHERE run_id = :run_id AND status = 'running' AND worker = :worker"
)
_STEP: Final = text(
    "INSERT INTO workflow_steps (run_id, position, step_id, status, output)"
    " VALUES (:run_id, :position, :step_id, :status, :output)"
)
_STEPS: Final = text("SELECT step_id, status, output FROM workflow_steps WHERE run_id = :run_id ORDER BY position")
_STALE: Final = text(
    "SELECT run_id FROM workflow_runs WHERE status <> 'running' AND (ended_at < :before OR run_id NOT IN"
    " (SELECT run_id FROM (SELECT run_id FROM workflow_runs WHERE status <> 'running' ORDER BY started_at DESC,"
    " run_id DESC LIMIT :max_runs) AS newest))"
)
_DELETE_RUN: Final = tuple(
    text(f"DELETE FROM {table} WHERE run_id = :run_id")  # noqa: S608  # only our own tables
    for table in ("workflow_steps", "workflow_logs", "workflow_runs")
)


class RunTakenOver(Exception):
    """Another worker has taken over the run; this worker must stop writing to it."""


@dataclass(frozen=True, slots=True)
class Control:
    """The caller and the control flags of a run. Stored with the run; contains no secrets."""

    caller: Caller
    actor: str | None
    dry_run: bool
    approved: bool
    traceparent: str | None = None
    """Trace context of the call that started the run; the parent of every step, on any worker."""


@dataclass(frozen=True, slots=True)
class Run:
    run_id: str
    workflow_id: str
    correlation_id: str
    status: str
    started_at: str
    ended_at: str | None
    total_steps: int
    completed_steps: int
    cancel_requested: bool
    error_code: str | None
    error_message: str | None
    definition: Json
    control: Control
    worker: str
    taken_over: int
    """Number of takeovers since the last completed step."""

    def snapshot(self) -> Json:
        snapshot: Json = {
            "runId": self.run_id,
            "workflowId": self.workflow_id,
            "correlationId": self.correlation_id,
            "status": self.status,
            "startedAt": self.started_at,
            "totalSteps": self.total_steps,
            "completedSteps": self.completed_steps,
            "cancelRequested": self.cancel_requested,
        }
        if self.ended_at is not None:
            snapshot["endedAt"] = self.ended_at
        if self.error_code is not None:
            snapshot["lastError"] = {"code": self.error_code, "message": self.error_message or ""}
        return snapshot


async def insert(
    store: Store,
    run_id: str,
    correlation_id: str,
    definition: Json,
    control: Control,
    worker: str,
    max_running: int,
) -> None:
    """Insert a new run. Raises `Fault(RATE_LIMITED)` when `max_running` runs are active."""
    name: str = definition["id"].strip()
    row: Json = {
        "run_id": run_id,
        "workflow_id": name,
        "correlation_id": correlation_id,
        "total": len(definition["steps"]),
        "definition": json.dumps(definition),
        "control": json.dumps(_from_control(control)),
        "worker": worker,
    }
    record = runlog.NewRun(
        run_id=run_id,
        correlation_id=correlation_id,
        type="workflow",
        name=name,
        worker=worker,
        principal=control.caller.principal,
        actor=control.actor,
    )
    async with store.transaction() as connection:
        if (await connection.execute(_COUNT)).scalar_one() >= max_running:
            message = f"workflow concurrency limit reached (max {max_running})"
            raise Fault(Kind.RATE_LIMITED, message, details={"max": max_running}, retry_after=1.0)
        row["at"] = await runlog.start_in_transaction(connection, record)
        await connection.execute(_INSERT, row)


async def find(store: Store, run_id: str) -> Run | None:
    async with store.transaction() as connection:
        row = (await connection.execute(_ONE, {"run_id": run_id})).one_or_none()
    return _to_run(row) if row is not None else None


async def list_running(store: Store, silent_for: float = 0.0) -> list[Run]:
    """Return the running runs; with `silent_for`, only those without a log line in the last `silent_for` seconds."""
    statement, row = (_SILENT, {"since": runlog.timestamp_before(silent_for)}) if silent_for else (_RUNNING, {})
    async with store.transaction() as connection:
        return [_to_run(each) for each in await connection.execute(statement, row)]


async def claim(store: Store, run: Run, worker: str) -> bool:
    """Take over a run of a dead worker. Returns False when another worker has already taken it."""
    row = {"run_id": run.run_id, "before": run.worker, "worker": worker}
    async with store.transaction() as connection:
        return (await connection.execute(_CLAIM, row)).rowcount > 0


async def request_cancel(store: Store, run_id: str) -> bool:
    """Request cancellation. Returns False when the run is not running."""
    async with store.transaction() as connection:
        return (await connection.execute(_CANCEL, {"run_id": run_id})).rowcount > 0


async def is_cancel_requested(store: Store, run_id: str) -> bool:
    async with store.transaction() as connection:
        return bool((await connection.execute(_CANCELED, {"run_id": run_id})).scalar_one_or_none())


async def end(
    connection: AsyncConnection,
    run: Run,
    worker: str,
    completed: int,
    status: str,
    code: str | None,
    message: str | None,
) -> None:
    """Store the end of a run. Its outputs stay until the run is pruned.

    Raises `RunTakenOver`; the transaction must then be rolled back, with the run-log record.
    """
    progress = f"steps={completed}/{run.total_steps}"
    at = await runlog.end_in_transaction(connection, run.run_id, status, progress, code, message)
    row = {"run_id": run.run_id, "status": status, "at": at, "code": code, "message": message, "worker": worker}
    if not (await connection.execute(_END, row)).rowcount:
        raise RunTakenOver


async def add_step(
    connection: AsyncConnection, run_id: str, worker: str, position: int, step_id: str, status: str, output: str | None
) -> None:
    """Record the result of a step and its stored output, if any. A skipped step counts as completed.

    Raises `RunTakenOver`.
    """
    done = {"run_id": run_id, "worker": worker, "completed": position + 1}
    if not (await connection.execute(_COMPLETED, done)).rowcount:
        raise RunTakenOver
    row = {"run_id": run_id, "position": position, "step_id": step_id, "status": status}
    await connection.execute(_STEP, {**row, "output": output})


async def load_outputs(store: Store, run_id: str) -> tuple[int, dict[str, str | None]]:
    """Return the number of completed steps and the stored outputs of the steps that were not skipped."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_STEPS, {"run_id": run_id})).all()
    return len(rows), {row.step_id: row.output for row in rows if row.status == "succeeded"}


async def read_steps(store: Store, run_id: str) -> list[tuple[str, str, str | None]]:
    """Return id, status and stored output of the finished steps, as JSON text; None without one."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_STEPS, {"run_id": run_id})).all()
    return [(row.step_id, row.status, row.output) for row in rows]


async def prune(store: Store, max_age: float, max_runs: int) -> None:
    """Delete finished runs older than `max_age` and all but the newest `max_runs`. Run-log records remain."""
    async with store.transaction() as connection:
        stale = (
            (await connection.execute(_STALE, {"before": runlog.timestamp_before(max_age), "max_runs": max_runs}))
            .scalars()
            .all()
        )
        for run_id in stale:
            for statement in _DELETE_RUN:
                await connection.execute(statement, {"run_id": run_id})


def _to_run(row: Row[Any]) -> Run:
    values: Json = {name: getattr(row, name) for name in Run.__slots__}
    values["control"] = _to_control(json.loads(row.control))
    values["definition"] = json.loads(row.definition)
    values["cancel_requested"] = bool(row.cancel_requested)
    return Run(**values)


def _to_control(row: Json) -> Control:
    caller_fields: Json = dict(row["caller"])
    caller_fields |= {key: frozenset(caller_fields[key]) for key in ("groups", "scopes")}
    caller = Caller(**caller_fields)
    return Control(caller, row["actor"], row["dry_run"], row["approved"], row.get("traceparent"))


def _from_control(control: Control) -> Json:
    caller = {each.name: getattr(control.caller, each.name) for each in fields(Caller) if each.init}
    return {
        "caller": {**caller, "groups": sorted(control.caller.groups), "scopes": sorted(control.caller.scopes)},
        "actor": control.actor,
        "dry_run": control.dry_run,
        "approved": control.approved,
        "traceparent": control.traceparent,
    }
