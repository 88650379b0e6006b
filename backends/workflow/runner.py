"""Runs carry on by themselves: step after step through the whole path, every result noted before the next begins."""

import asyncio
import itertools
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backends.gox import registry
from backends.gox.action import WORDS
from backends.workflow import logs, run_store
from backends.workflow.attempt import attempt
from backends.workflow.definition import Definition, Step, parse
from backends.workflow.expressions import filled, holds
from backends.workflow.options import Options
from backends.workflow.outputs import Outputs
from backends.workflow.run_store import Control, Run
from gateway.contract import Host, Json, Store
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.workflow")

_CANCEL: Final = "gox.workflow.cancel"
_PATIENCE: Final = (0.1, 1.0, 5.0)
_TAKE_OVERS: Final = 3
_numbers = itertools.count(1)


class _Canceled(Exception):
    """Somebody asked for it."""


@dataclass(eq=False, slots=True)
class Live:
    """A run of this worker: whoever waits for it waits for `changed`."""

    run: Run
    completed: int = 0
    ended: bool = False
    canceled: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Runner:
    def __init__(self, home: Host, options: Options) -> None:
        self._home = home
        self._options = options
        self._live: dict[str, Live] = {}
        home.bus.respond(_CANCEL, self._cancel_here)

    def live(self, run_id: str) -> Live | None:
        return self._live.get(run_id)

    async def start(self, definition: Json, correlation_id: str, control: Control) -> str:
        """The id of a new run, which has begun."""
        parsed = parse(definition, self._options.limits)
        for step in parsed.steps:
            if not self._home.has_tool(control.caller, step.action):
                details = {"actionId": step.action, "stepId": step.id}
                raise Fault(Kind.NOT_FOUND, f"action {step.action!r} is not registered", details=details)
        store = self._home.store(control.caller)
        await run_store.prune(store, self._options.retention_ttl, self._options.retention_max_runs)
        run_id, worker = f"wf-{time.time_ns()}-{next(_numbers)}", self._home.bus.worker
        most = self._options.max_concurrent_runs
        await run_store.insert(store, run_id, correlation_id, definition, control, worker, most)
        run = await run_store.find(store, run_id)
        assert run is not None
        self._carry(run, parsed, resumed=False)
        return run_id

    async def cancel(self, store: Store, run: Run) -> bool:
        """Whether it was running, and now will end."""
        if not await run_store.request_cancel(store, run.run_id):
            return False
        await self._note(store, run.run_id, "info", "workflow cancel requested")
        if run.worker == self._home.bus.worker:
            await self._cancel_here({"run_id": run.run_id})
        elif await registry.alive(self._home, run.worker):
            await self._home.bus.request(run.worker, _CANCEL, {"run_id": run.run_id})
        return True

    async def take_over(self, store: Store, run: Run) -> None:
        """A run that was another worker's: go on with it, or say that it failed."""
        try:
            if self._options.on_restart == "fail":
                raise Fault(Kind.INTERNAL, "The gateway stopped while this ran.")
            if run.taken_over >= _TAKE_OVERS:
                raise Fault(
                    Kind.INTERNAL,
                    f"The gateway stopped {_TAKE_OVERS + 1} times at step {run.completed_steps + 1} of this run,"
                    " which was given up.",
                )
            definition = parse(run.definition, self._options.limits)
        except Fault as fault:
            await self._end(store, Live(run, run.completed_steps), "failed", WORDS[fault.kind], fault.message)
            return
        await self._note(store, run.run_id, "warn", "workflow resumed after a restart")
        self._carry(run, definition, resumed=True)

    # ---- one run ----

    def _carry(self, run: Run, definition: Definition, *, resumed: bool) -> None:
        live = self._live[run.run_id] = Live(run)
        if run.cancel_requested:
            live.canceled.set()
        self._home.spawn(self._run(live, definition, resumed=resumed))

    async def _run(self, live: Live, definition: Definition, *, resumed: bool) -> None:
        store = self._home.store(live.run.control.caller)
        try:
            if not resumed:
                await self._note(store, live.run.run_id, "info", "workflow started")
            await self._through(store, live, definition)
            await self._end(store, live, "succeeded")
        except _Canceled:
            await self._end(store, live, "canceled")
        except Fault as fault:
            await self._end(store, live, "failed", fault.code or WORDS[fault.kind], fault.message)
        except run_store.Lost:
            log.warning("another worker goes on with %s", live.run.run_id)
        except Exception:
            # A run must come to an end that its owner can see, whatever happened.
            log.exception("a workflow run failed", extra={"correlation_id": live.run.correlation_id})
            await self._end(store, live, "failed", "INTERNAL_ERROR", "The run could not be carried on.")
        finally:
            self._live.pop(live.run.run_id, None)
            live.tell()

    async def _through(self, store: Store, live: Live, definition: Definition) -> None:
        run = live.run
        live.completed, kept = await run_store.outputs(store, run.run_id)
        outputs = Outputs(kept, self._options.max_kept_bytes)
        for position, step in enumerate(definition.steps[live.completed :], live.completed):
            # Also by the row: whoever was asked to cancel may not have been able to reach us.
            if live.canceled.is_set() or await run_store.cancel_requested(store, run.run_id):
                raise _Canceled
            status, output = "succeeded", None
            if step.when is not None and not holds(step.when, outputs):
                status, line = "skipped", "step skipped (condition not met)"
            else:
                output = outputs.add(step.id, await self._step(store, live, step, outputs))
                line = "step completed"
            async with store.transaction() as connection:
                worker = self._home.bus.worker
                await run_store.add_step(connection, run.run_id, worker, position, step.id, status, output)
                most = self._options.max_logs_per_run
                await logs.add(connection, run.run_id, most, "info", line, step.id, step.action)
            live.completed = position + 1
            live.tell()

    async def _step(self, store: Store, live: Live, step: Step, outputs: Outputs) -> Any:
        number = 0
        while True:
            number += 1
            if not await self._home.is_authorized(live.run.control.caller):
                raise Fault(Kind.DENIED, "the credential that started this run is no longer good")
            line = f"step started (attempt 1/{step.attempts})"
            if number > 1:
                line = f"retry attempt {number}/{step.attempts}"
            await self._note(store, live.run.run_id, "info", line, step)
            try:
                return await self._unless_canceled(live, self._attempt(live, step, outputs))
            except Fault as fault:
                final = number >= step.attempts or not (fault.kind is Kind.INTERNAL or fault.retryable)
                level, line = ("error", "step failed") if final else ("warn", "step attempt failed, retrying")
                await self._note(store, live.run.run_id, level, line, step)
                if final:
                    raise
            await self._unless_canceled(live, asyncio.sleep(step.backoff))

    async def _attempt(self, live: Live, step: Step, outputs: Outputs) -> Any:
        run, control = live.run, live.run.control
        meta: Json = {
            "correlationId": run.correlation_id,
            "dryRun": control.dry_run,
            "approved": control.approved,
            # Should we die before the result is noted, the step is asked for again: once done, it stays done.
            "idempotencyKey": f"{run.run_id}:{step.id}",
        }
        if control.actor is not None:
            meta["actor"] = control.actor
        if control.traceparent is not None:
            meta["traceparent"] = control.traceparent
        arguments = filled(step.input, outputs, self._options.max_input_bytes)
        return await attempt(self._home, control.caller, step, arguments, meta)

    async def _unless_canceled(self, live: Live, work: Any) -> Any:
        task, canceled = asyncio.ensure_future(work), asyncio.ensure_future(live.canceled.wait())
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
        self, store: Store, live: Live, status: str, code: str | None = None, message: str | None = None
    ) -> None:
        level = "error" if status == "failed" else "info"
        for pause in (*_PATIENCE, None):
            try:
                async with store.transaction() as connection:
                    worker, most = self._home.bus.worker, self._options.max_logs_per_run
                    await run_store.end(connection, live.run, worker, live.completed, status, code, message)
                    await logs.add(connection, live.run.run_id, most, level, f"workflow {status}")
                break
            except run_store.Lost:
                log.warning("another worker goes on with %s", live.run.run_id)
                return
            except Fault:
                # A run whose end is not noted would run for ever: a busy store is waited for.
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        live.ended = True

    async def _cancel_here(self, message: Json) -> Json:
        live = self._live.get(message["run_id"])
        if live is not None:
            live.run = replace(live.run, cancel_requested=True)
            live.canceled.set()
        return {}

    async def _note(self, store: Store, run_id: str, level: str, message: str, step: Step | None = None) -> None:
        named = (step.id, step.action) if step is not None else (None, None)
        async with store.transaction() as connection:
            await logs.add(connection, run_id, self._options.max_logs_per_run, level, message, *named)
