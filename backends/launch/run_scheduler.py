"""Schedules the work of runs: one job at a time per run, in background tasks that outlive the tool call."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from backends.launch import failures, run_index
from backends.launch.errors import internal
from backends.launch.events import Span
from backends.launch.job import Job, Progress, read_report
from backends.launch.model_clients import EndpointClient, SamplingClient, draft_sections
from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.pipeline import STEPS
from backends.launch.run import Run, start_and_end, work_seconds
from backends.launch.run_slots import RunSlots
from backends.launch.states import STABLE, TERMINAL, State
from backends.launch.telemetry import Telemetry
from backends.launch.worker_process import WorkerProcess
from gateway.contract import Caller, Host, Lease
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

T = TypeVar("T")
_LEASE_SECONDS: Final = 30.0


_BEFORE_DRAFTING: Final = frozenset({State.CREATED, State.CLONED_INPUTS, State.INGESTED, State.FACTS_READY})


async def ignore_progress(message: str) -> None:
    """Progress callback for background work without a waiting client."""


class RunScheduler:
    """Executes jobs for runs.

    At most one job per run executes at a time, across all workers of the gateway. Concurrency across runs is limited
    by `RunSlots`.
    """

    def __init__(self, host: Host, telemetry: Telemetry, outbound: OutboundClients) -> None:
        self._host = host
        self._options: Options = host.options
        self._outbound = outbound
        self._telemetry = telemetry
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._processes: dict[str, WorkerProcess] = {}
        self._slots = RunSlots(host.options.children)

    def start(self, caller: Caller, run: Run, span: Span) -> None:
        """Advance the run in the background."""
        self._host.spawn(self._advance_in_background(caller, run, span))

    async def run_job(
        self, caller: Caller, run: Run, span: Span, progress: Progress, work: Callable[[Job], Awaitable[T]]
    ) -> T:
        """Run the work as the next job of the run and return its result. A cancelled caller does not cancel the job."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve_exception)
        self._host.spawn(self._execute_job(future, caller, run, span, progress, work))
        return await asyncio.shield(future)

    async def resume(self, caller: Caller, run: Run, span: Span, progress: Progress, sampling: SamplingClient) -> None:
        """Advance from the last stable state to the next one, then continue in the background.

        With the writer `sampling`, the client's model drafts sections while this call is open.
        """

        async def work(job: Job) -> None:
            if self._options.writer == "sampling" and sampling.is_offered:
                job = replace(job, before_drafting=partial(draft_sections, model=sampling))
            await self._rewind_to_stable(job)
            await self._advance(caller, job, to_stable=True)

        await self.run_job(caller, run, span, progress, work)
        self.start(caller, run, span)

    def stop(self, caller: Caller, run: Run) -> None:
        """Kill the worker process of the run, if it belongs to this gateway process."""
        process = self._processes.get(_key(caller, run))
        if process is not None:
            process.kill()

    async def update_index(self, caller: Caller, run: Run) -> None:
        """Copy the run's state and end time from its journal to the tenant's index of runs."""
        events = await asyncio.to_thread(run.events)
        state = await asyncio.to_thread(run.state)
        await run_index.set_state(self._host.store(caller), run.run_id, state, start_and_end(events)[1])

    # ---- one job ----

    async def _advance_in_background(self, caller: Caller, run: Run, span: Span) -> None:
        async def work(job: Job) -> None:
            if self._options.writer == "sampling" and await asyncio.to_thread(run.state) in _BEFORE_DRAFTING:
                # The client's model is reachable only inside a call: wait in PLAN_READY for launch_resume.
                await self._advance(caller, job, to_stable=True)
                return
            await self._advance(caller, job, to_stable=False)

        try:
            async with self._open_job(caller, run, span, ignore_progress) as job:
                await work(job)
        except Fault as fault:
            log.info("launch run %s: background work stopped: %s", run.run_id, fault.code or fault.kind)

    async def _execute_job(
        self,
        future: "asyncio.Future[Any]",
        caller: Caller,
        run: Run,
        span: Span,
        progress: Progress,
        work: Callable[[Job], Awaitable[Any]],
    ) -> None:
        try:
            async with self._open_job(caller, run, span, progress) as job:
                result = await work(job)
        except Fault as fault:
            _set_fault(future, fault)
        except Exception as exc:
            log.exception("launch run %s: job failed with an unexpected error", run.run_id)
            _set_fault(future, internal(exc))
        except asyncio.CancelledError:
            _set_fault(future, Fault(Kind.UNAVAILABLE, "The gateway is shutting down.", retryable=True))
            raise
        else:
            if not future.done():
                future.set_result(result)

    @asynccontextmanager
    async def _open_job(self, caller: Caller, run: Run, span: Span, progress: Progress) -> AsyncGenerator[Job]:
        key = _key(caller, run)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock, self._slots.acquire(caller.tenant), self._hold_lease(key):
            process = self._processes[key] = WorkerProcess(run, self._host.options)
            event_count = len(await asyncio.to_thread(run.events))
            try:
                yield Job(run, span, process, progress, self._host.span, self._endpoint_drafting())
            except Fault as fault:
                await self._handle_fault(run, span, fault)
                raise
            finally:
                del self._processes[key]
                await process.close()
                await self.update_index(caller, run)
                await self._telemetry.record_work_items(run, event_count)
                await self._telemetry.flush(run)

    def _endpoint_drafting(self) -> Callable[[Job], Awaitable[None]] | None:
        if self._options.writer != "llm" or self._options.llm_base_url is None:
            return None
        model = EndpointClient(self._options, self._outbound)
        return partial(draft_sections, model=model)

    @asynccontextmanager
    async def _hold_lease(self, key: str) -> AsyncGenerator[None]:
        """Hold the run's lease, which excludes all other workers of the gateway."""
        lease = await self._host.bus.lease(f"launch:{key}", _LEASE_SECONDS)
        if lease is None:
            raise Fault(Kind.UNAVAILABLE, "Another worker is processing this run. Try again.", retry_after=2.0)
        renewal = asyncio.create_task(self._renew_lease(key, lease))
        try:
            yield
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal
            await lease.release()

    async def _renew_lease(self, key: str, lease: Lease) -> None:
        """Renew the lease until cancelled. Kill the worker process if the lease is lost."""
        while True:
            await asyncio.sleep(_LEASE_SECONDS / 3)
            if not await lease.renew() and key in self._processes:
                self._processes[key].kill()

    async def _handle_fault(self, run: Run, span: Span, fault: Fault) -> None:
        """Pause the run after a fault that may pass; otherwise fail it and write a failure report."""
        state = await asyncio.to_thread(run.state)
        if fault.code == "ILLEGAL_STATE" or state in TERMINAL:
            return
        if failures.may_pass(fault) or state is State.READY_FOR_PR:
            await asyncio.to_thread(failures.pause, run, span, fault)
            return
        await asyncio.to_thread(failures.fail, run, span, fault)

    # ---- state transitions ----

    async def _advance(self, caller: Caller, job: Job, *, to_stable: bool) -> None:
        while True:
            state = State((await job.snapshot())["run_state"])
            step = STEPS.get(state)
            if state is State.PR_OPENED:
                await job.move(State.DONE)
                return
            if step is None:
                return
            if not await self._host.is_authorized(caller):
                raise Fault(
                    Kind.DENIED,
                    "The credential used for this run is no longer valid. Resume the run with a valid credential.",
                    retryable=True,
                )
            await asyncio.to_thread(_check_runtime, job.run)
            await self._take_step(job, state)
            await asyncio.to_thread(failures.resolve_pauses, job.run, job.span)
            await self.update_index(caller, job.run)
            await self._telemetry.record_step(job.run, job.span, f"{state}", f"{step.target}")
            if to_stable and step.target in STABLE:
                return

    async def _take_step(self, job: Job, state: State) -> None:
        step = STEPS[state]
        if step.target is not State.VALIDATING:
            await job.take_step(step)
            return
        report = await job.validate()
        await job.move(State.VALIDATING)
        await job.progress(State.VALIDATING)
        await job.apply_report(report)

    async def _rewind_to_stable(self, job: Job) -> None:
        state = State((await job.snapshot())["run_state"])
        target = {
            State.DRAFTING: State.PLAN_READY,
            State.LINKING: State.DRAFT_READY,
            State.VALIDATING: State.DRAFT_READY,
            State.FIXING: State.DRAFT_READY,
        }.get(state)
        if target is not None:
            await job.rewind(target, "RESUME_REWIND")
        elif state is State.READY_FOR_PR:
            report = await asyncio.to_thread(read_report, job.run)
            if report is None or not report["ok"]:
                await job.rewind(State.VALIDATING, "VALIDATION_REWIND")


def _check_runtime(run: Run) -> None:
    """Raises `Fault` when the run's work time exceeds its budget. Waiting time does not count."""
    spent = work_seconds(run.events())
    limit = run.config["budgets"]["max_runtime_s"]
    if spent > limit:
        raise Fault(
            Kind.TIMEOUT,
            f"The run has exceeded its work time budget of {limit} s.",
            code="BUDGET_EXCEEDED_RUNTIME",
            retryable=False,
            details={"run_id": run.run_id, "max_runtime_s": limit, "spent_s": round(spent, 3)},
        )


def _key(caller: Caller, run: Run) -> str:
    return f"{caller.tenant}:{run.run_id}"


def _set_fault(future: "asyncio.Future[Any]", fault: Fault) -> None:
    if not future.done():
        future.set_exception(fault)


def _retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Mark the exception as retrieved, so that asyncio does not log it when the caller was cancelled."""
    if not future.cancelled():
        future.exception()
