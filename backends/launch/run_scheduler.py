"""Runs on their way: one job at a time for each run, and every job outlives the call that asked for it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from backends.launch import run_index
from backends.launch.errors import internal
from backends.launch.events import News, Span
from backends.launch.job import Job, Progress, read_report
from backends.launch.pipeline import STEPS
from backends.launch.run import Run, at_work, times
from backends.launch.run_slots import Places
from backends.launch.serialization import write_whole
from backends.launch.states import STABLE, TERMINAL, State
from backends.launch.telemetry import Telemetry
from backends.launch.worker_process import Workshop
from gateway.contract import Caller, Host, Lease
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

T = TypeVar("T")
_LEASE: Final = 30.0
_STAYS: Final = frozenset({"TOOLCHAIN_MISSING"})
"""Faults that leave a run where it is, as all that a retry can help do."""


async def silent(message: str) -> None:
    """Nobody waits."""


class Conductor:
    def __init__(self, home: Host, telemetry: Telemetry) -> None:
        self._home = home
        self._telemetry = telemetry
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._workshops: dict[str, Workshop] = {}
        self._places = Places(home.options.children)

    def start(self, caller: Caller, run: Run, span: Span) -> None:
        """Let the run advance by itself."""
        self._home.spawn(self._alone(caller, run, span))

    async def together(
        self, caller: Caller, run: Run, span: Span, progress: Progress, work: Callable[[Job], Awaitable[T]]
    ) -> T:
        """Do the work when it is the run's turn; should the one who waits leave, it is done all the same."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_looked_at)
        self._home.spawn(self._answered(answer, caller, run, span, progress, work))
        return await asyncio.shield(answer)

    async def resume(self, caller: Caller, run: Run, span: Span, progress: Progress) -> None:
        """From the last stable state to the next; the rest of the way goes on alone."""

        async def work(job: Job) -> None:
            await self._back_to_stable(job)
            await self._advance(caller, job, to_stable=True)

        await self.together(caller, run, span, progress, work)
        self.start(caller, run, span)

    def stop(self, caller: Caller, run: Run) -> None:
        """End the work that is being done for the run in this process."""
        workshop = self._workshops.get(_key(caller, run))
        if workshop is not None:
            workshop.kill()

    async def index(self, caller: Caller, run: Run) -> None:
        """Let the tenant's list of runs say what the run's journal says."""
        known = await asyncio.to_thread(run.events)
        state = await asyncio.to_thread(run.state)
        await run_index.set_state(self._home.store(caller), run.run_id, state, times(known)[1])

    # ---- one job ----

    async def _alone(self, caller: Caller, run: Run, span: Span) -> None:
        async def work(job: Job) -> None:
            await self._advance(caller, job, to_stable=False)

        try:
            async with self._job(caller, run, span, silent) as job:
                await work(job)
        except Fault as fault:
            log.info("run %s stopped: %s", run.run_id, fault.code or fault.kind)

    async def _answered(
        self,
        answer: "asyncio.Future[Any]",
        caller: Caller,
        run: Run,
        span: Span,
        progress: Progress,
        work: Callable[[Job], Awaitable[Any]],
    ) -> None:
        try:
            async with self._job(caller, run, span, progress) as job:
                result = await work(job)
        except Fault as fault:
            _give(answer, fault)
        except Exception as exc:
            log.exception("work on run %s failed", run.run_id)
            _give(answer, internal(exc))
        except asyncio.CancelledError:
            _give(answer, Fault(Kind.UNAVAILABLE, "The gateway is shutting down.", retryable=True))
            raise
        else:
            if not answer.done():
                answer.set_result(result)

    @asynccontextmanager
    async def _job(self, caller: Caller, run: Run, span: Span, progress: Progress) -> AsyncGenerator[Job]:
        key = _key(caller, run)
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn, self._places.one(caller.tenant), self._leased(key):
            workshop = self._workshops[key] = Workshop(run, self._home.options)
            known = len(await asyncio.to_thread(run.events))
            try:
                yield Job(run, span, workshop, progress, self._home.span)
            except Fault as fault:
                await self._failed(run, span, fault)
                raise
            finally:
                del self._workshops[key]
                await workshop.close()
                await self.index(caller, run)
                await self._telemetry.worked(run, known)
                await self._telemetry.flush(run)

    @asynccontextmanager
    async def _leased(self, key: str) -> AsyncGenerator[None]:
        """The run's lease among all workers of the gateway."""
        lease = await self._home.bus.lease(f"launch:{key}", _LEASE)
        if lease is None:
            raise Fault(Kind.UNAVAILABLE, "Another worker is at work on this run. Try again.", retry_after=2.0)
        keeping = asyncio.create_task(self._keep(key, lease))
        try:
            yield
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            await lease.release()

    async def _keep(self, key: str, lease: Lease) -> None:
        """Renew it; when it is lost, another worker may be at work, so ours ends."""
        while True:
            await asyncio.sleep(_LEASE / 3)
            if not await lease.renew() and key in self._workshops:
                self._workshops[key].kill()

    async def _failed(self, run: Run, span: Span, fault: Fault) -> None:
        """A fault that no retry can help ends the run, with a report of why."""
        state = await asyncio.to_thread(run.state)
        if fault.code == "ILLEGAL_STATE" or state in TERMINAL:
            return
        if fault.retryable or fault.code in _STAYS or state is State.READY_FOR_PR:
            pause = News("RUN_PAUSED", {"state": state, "code": fault.code or fault.kind.upper()}, span)
            await asyncio.to_thread(run.record, [pause])
            return
        summary = f"# The run failed\n\n- State: {state}\n- Code: {fault.code or fault.kind}\n\n{fault.message}\n"
        await asyncio.to_thread(write_whole, run.folder / "reports" / "failure_summary.md", summary.encode())
        with contextlib.suppress(Fault):  # cancelled at this very moment: then it stays cancelled
            await asyncio.to_thread(run.move, State.FAILED, span)

    # ---- the way ----

    async def _advance(self, caller: Caller, job: Job, *, to_stable: bool) -> None:
        while True:
            state = State((await job.snapshot())["run_state"])
            step = STEPS.get(state)
            if state is State.PR_OPENED:
                await job.move(State.DONE)
                return
            if step is None:
                return
            if not await self._home.is_authorized(caller):
                raise Fault(Kind.DENIED, "The credential that this run goes on with is no longer good.", retryable=True)
            await asyncio.to_thread(_check_runtime, job.run)
            await self._step(job, state)
            await self.index(caller, job.run)
            await self._telemetry.work(job.run, job.span, f"{state}", f"{step.target}")
            if to_stable and step.target in STABLE:
                return

    async def _step(self, job: Job, state: State) -> None:
        step = STEPS[state]
        if step.target is not State.VALIDATING:
            await job.take(step)
            return
        report = await job.validate()
        await job.move(State.VALIDATING)
        await job.progress(State.VALIDATING)
        await job.settle(report)

    async def _back_to_stable(self, job: Job) -> None:
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
    """Raises `Fault` when the run has been at work for longer than its budget allows; waiting does not count."""
    spent = at_work(run.events())
    most = run.config["budgets"]["max_runtime_s"]
    if spent > most:
        raise Fault(
            Kind.TIMEOUT,
            f"The run has been at work for longer than its budget of {most} s.",
            code="BUDGET_EXCEEDED_RUNTIME",
            retryable=False,
            details={"run_id": run.run_id, "max_runtime_s": most, "spent_s": round(spent, 3)},
        )


def _key(caller: Caller, run: Run) -> str:
    return f"{caller.tenant}:{run.run_id}"


def _give(answer: "asyncio.Future[Any]", fault: Fault) -> None:
    if not answer.done():
        answer.set_exception(fault)


def _looked_at(answer: "asyncio.Future[Any]") -> None:
    if not answer.cancelled():
        answer.exception()
