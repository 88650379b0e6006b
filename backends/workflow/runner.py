"""Executes workflow runs in the background, step by step; each result is stored before the next step starts."""

import asyncio
import itertools
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from backends.gox import registry
from backends.gox.action import ERROR_CODES
from backends.workflow import logs, run_store
from backends.workflow.attempt import attempt
from backends.workflow.definition import Definition, ForEach, Step, parse
from backends.workflow.expressions import PathNotFound, get_path, resolve_item, resolve_references, unmet_reason
from backends.workflow.options import Options
from backends.workflow.outputs import Outputs
from backends.workflow.run_store import Control, Run
from gateway.contract import Host, Json, Store
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.workflow")

_CANCEL_TOPIC: Final = "gox.workflow.cancel"
_END_RETRY_DELAYS: Final = (0.1, 1.0, 5.0)
_MAX_TAKEOVERS: Final = 3
_run_counter = itertools.count(1)


class _Canceled(Exception):
    """Cancellation of the run was requested."""


@dataclass(eq=False, slots=True)
class ActiveRun:
    """A run that this worker executes. To wait for progress, wait for `changed`."""

    run: Run
    completed: int = 0
    ended: bool = False
    canceled: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Runner:
    """Starts, resumes and cancels the runs of this worker."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        self._active: dict[str, ActiveRun] = {}
        host.bus.respond(_CANCEL_TOPIC, self._cancel_local)

    def active_run(self, run_id: str) -> ActiveRun | None:
        return self._active.get(run_id)

    async def start(self, definition: Json, correlation_id: str, control: Control) -> str:
        """Validate the definition, start a run, and return its id."""
        parsed = parse(definition, self._options.limits)
        for step in parsed.steps:
            tool = self._host.find_tool(control.caller, step.action)
            details = {"actionId": step.action, "stepId": step.id}
            if tool is None:
                raise Fault(Kind.NOT_FOUND, f"action {step.action!r} is not registered", details=details)
            if control.dry_run and not tool.allows_dry_run:
                raise Fault(
                    Kind.INVALID_INPUT,
                    f"step {step.id!r} has no dry run: {step.action} would change data. Nothing was started.",
                    details={**details, "validation_path": "input.dryRun", "validation_rule": "dryRun"},
                )
        store = self._host.store(control.caller)
        await run_store.prune(store, self._options.retention_ttl, self._options.retention_max_runs)
        run_id, worker = f"wf-{time.time_ns()}-{next(_run_counter)}", self._host.bus.worker
        max_running = self._options.max_concurrent_runs
        await run_store.insert(store, run_id, correlation_id, definition, control, worker, max_running)
        run = await run_store.find(store, run_id)
        assert run is not None
        self._spawn(run, parsed, resumed=False)
        return run_id

    async def cancel(self, store: Store, run: Run) -> bool:
        """Request cancellation on the worker of the run. Returns False when the run has already ended."""
        if not await run_store.request_cancel(store, run.run_id):
            return False
        await self._log(store, run.run_id, "info", "workflow cancel requested")
        if run.worker == self._host.bus.worker:
            await self._cancel_local({"run_id": run.run_id})
        elif await registry.is_worker_alive(self._host, run.worker):
            await self._host.bus.request(run.worker, _CANCEL_TOPIC, {"run_id": run.run_id})
        return True

    async def take_over(self, store: Store, run: Run) -> None:
        """Resume the run of another worker, or mark it as failed."""
        try:
            if self._options.on_restart == "fail":
                raise Fault(Kind.INTERNAL, "The gateway stopped while this ran.")
            if run.taken_over >= _MAX_TAKEOVERS:
                raise Fault(
                    Kind.INTERNAL,
                    f"The gateway stopped {_MAX_TAKEOVERS + 1} times at step {run.completed_steps + 1} of this run,"
                    " which is not resumed again.",
                )
            definition = parse(run.definition, self._options.limits)
        except Fault as fault:
            await self._end(
                store, ActiveRun(run, run.completed_steps), "failed", ERROR_CODES[fault.kind], fault.message
            )
            return
        await self._log(store, run.run_id, "warn", "workflow resumed after a restart")
        self._spawn(run, definition, resumed=True)

    # ---- one run ----

    def _spawn(self, run: Run, definition: Definition, *, resumed: bool) -> None:
        active = self._active[run.run_id] = ActiveRun(run)
        if run.cancel_requested:
            active.canceled.set()
        self._host.spawn(self._run(active, definition, resumed=resumed))

    async def _run(self, active: ActiveRun, definition: Definition, *, resumed: bool) -> None:
        store = self._host.store(active.run.control.caller)
        try:
            if not resumed:
                await self._log(store, active.run.run_id, "info", "workflow started")
            await self._run_steps(store, active, definition)
            await self._end(store, active, "succeeded")
        except _Canceled:
            await self._end(store, active, "canceled")
        except Fault as fault:
            await self._end(store, active, "failed", fault.code or ERROR_CODES[fault.kind], fault.message)
        except run_store.RunTakenOver:
            log.warning("workflow: run %s was taken over by another worker; stopping it here", active.run.run_id)
        except Exception:
            # The owner must see that the run ended, whatever the cause.
            log.exception(
                "workflow: run %s failed with an unexpected error",
                active.run.run_id,
                extra={"correlation_id": active.run.correlation_id},
            )
            await self._end(store, active, "failed", "INTERNAL_ERROR", "The run failed with an internal error.")
        finally:
            self._active.pop(active.run.run_id, None)
            active.notify()

    async def _run_steps(self, store: Store, active: ActiveRun, definition: Definition) -> None:
        run = active.run
        active.completed, stored = await run_store.load_outputs(store, run.run_id)
        outputs = Outputs(stored, self._options.max_kept_bytes)
        position = active.completed
        while position < len(definition.steps):
            step = definition.steps[position]
            # Check the database too: the worker that received the cancel request may not have reached this one.
            if active.canceled.is_set() or await run_store.is_cancel_requested(store, run.run_id):
                raise _Canceled
            status, output, passed = "succeeded", None, ()
            unmet = unmet_reason(step.when, outputs) if step.when is not None else None
            if unmet is not None:
                status, line = "skipped", f"step skipped ({unmet})"
            else:
                try:
                    output = outputs.add(step.id, await self._run_step(store, active, step, outputs))
                    line = "step completed"
                except Fault as fault:
                    if not step.continues:
                        raise
                    status, line = "failed", f"run continues after the failure: {fault.message}"
                    passed = _steps_before(definition, position + 1, step.goto)
            async with store.transaction() as connection:
                worker = self._host.bus.worker
                await run_store.add_step(connection, run.run_id, worker, position, step.id, status, output)
                max_lines = self._options.max_logs_per_run
                await logs.append(connection, run.run_id, max_lines, "info", line, step.id, step.action)
                # In the same transaction, so that a restart does not run the steps that the jump passes over.
                for other in passed:
                    position += 1
                    await run_store.add_step(connection, run.run_id, worker, position, other.id, "skipped", None)
                    line = f"step skipped (step {step.id!r} failed)"
                    await logs.append(connection, run.run_id, max_lines, "info", line, other.id, other.action)
            position += 1
            active.completed = position
            active.notify()

    async def _run_step(self, store: Store, active: ActiveRun, step: Step, outputs: Outputs) -> Any:
        number = 0
        while True:
            number += 1
            if not await self._host.is_authorized(active.run.control.caller):
                raise Fault(Kind.DENIED, "the credential that started this run is no longer valid")
            line = f"step started (attempt 1/{step.attempts})"
            if number > 1:
                line = f"retry attempt {number}/{step.attempts}"
            tool = self._host.find_tool(active.run.control.caller, step.action)
            repeats = tool is None or (tool.may_repeat and not active.run.control.dry_run)
            await self._log(store, active.run.run_id, "info", line, step, may_repeat=repeats)
            try:
                return await self._wait_unless_canceled(active, self._attempt(active, step, outputs))
            except Fault as fault:
                final = number >= step.attempts or not (fault.kind is Kind.INTERNAL or fault.retryable)
                level, line = ("error", "step failed") if final else ("warn", "step attempt failed, retrying")
                await self._log(store, active.run.run_id, level, line, step)
                if final:
                    raise
            await self._wait_unless_canceled(active, asyncio.sleep(step.backoff))

    async def _attempt(self, active: ActiveRun, step: Step, outputs: Outputs) -> Any:
        arguments = resolve_references(step.input, outputs, self._options.max_input_bytes)
        if step.for_each is None:
            return await self._call_tool(active, step, arguments, step.id)
        items = self._items(step.for_each, outputs)
        free = asyncio.Semaphore(step.for_each.parallel)

        async def call(index: int, item: Any) -> Any:
            async with free:
                return await self._call_tool(active, step, resolve_item(arguments, item, index), f"{step.id}:{index}")

        try:
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(call(index, item)) for index, item in enumerate(items)]
        except* Fault as failures:
            raise failures.exceptions[0] from None
        return {"items": [each.result() for each in calls]}

    def _items(self, for_each: ForEach, outputs: Outputs) -> list[Any]:
        try:
            items = get_path(outputs[for_each.step_id], for_each.path)
        except (KeyError, PathNotFound) as exc:
            message = f"forEach: step {for_each.step_id!r} has no output at {for_each.path!r}"
            raise Fault(Kind.INVALID_INPUT, message) from exc
        if not isinstance(items, list):
            raise Fault(Kind.INVALID_INPUT, f"forEach: the output at {for_each.path!r} is not an array")
        found = cast("list[Any]", items)
        if len(found) > self._options.max_items:
            message = f"forEach: {len(found)} items are more than the {self._options.max_items} allowed"
            raise Fault(Kind.TOO_LARGE, message, details={"items": len(found), "max_items": self._options.max_items})
        return found

    async def _call_tool(self, active: ActiveRun, step: Step, arguments: Json, key: str) -> Any:
        run, control = active.run, active.run.control
        meta: Json = {
            "correlationId": run.correlation_id,
            "dryRun": control.dry_run,
            "approved": control.approved,
            # A step whose result was not stored before a crash is called again; the key prevents a second execution.
            "idempotencyKey": f"{run.run_id}:{key}",
        }
        if control.actor is not None:
            meta["actor"] = control.actor
        if control.traceparent is not None:
            meta["traceparent"] = control.traceparent
        return await attempt(self._host, control.caller, step, arguments, meta)

    async def _wait_unless_canceled(self, active: ActiveRun, awaitable: Any) -> Any:
        task, canceled = asyncio.ensure_future(awaitable), asyncio.ensure_future(active.canceled.wait())
        try:
            await asyncio.wait((task, canceled), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _Canceled
        finally:
            task.cancel()
            canceled.cancel()
            await asyncio.gather(task, canceled, return_exceptions=True)

    async def _end(
        self, store: Store, active: ActiveRun, status: str, code: str | None = None, message: str | None = None
    ) -> None:
        level = "error" if status == "failed" else "info"
        for pause in (*_END_RETRY_DELAYS, None):
            try:
                async with store.transaction() as connection:
                    worker, max_lines = self._host.bus.worker, self._options.max_logs_per_run
                    await run_store.end(connection, active.run, worker, active.completed, status, code, message)
                    await logs.append(connection, active.run.run_id, max_lines, level, f"workflow {status}")
                break
            except run_store.RunTakenOver:
                log.warning("workflow: run %s was taken over by another worker; stopping it here", active.run.run_id)
                return
            except Fault:
                # Without a stored end the run would appear to run forever: retry while the store is busy.
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        active.ended = True

    async def _cancel_local(self, message: Json) -> Json:
        active = self._active.get(message["run_id"])
        if active is not None:
            active.run = replace(active.run, cancel_requested=True)
            active.canceled.set()
        return {}

    async def _log(
        self,
        store: Store,
        run_id: str,
        level: str,
        message: str,
        step: Step | None = None,
        *,
        may_repeat: bool = False,
    ) -> None:
        step_columns = (step.id, step.action) if step is not None else (None, None)
        max_lines = self._options.max_logs_per_run
        async with store.transaction() as connection:
            await logs.append(connection, run_id, max_lines, level, message, *step_columns, may_repeat=may_repeat)


def _steps_before(definition: Definition, start: int, target: str | None) -> tuple[Step, ...]:
    """Return the steps from `start` up to the step `target`; none without a target."""
    if target is None:
        return ()
    end = next(index for index, step in enumerate(definition.steps) if step.id == target)
    return definition.steps[start:end]
