"""Executes the work items of one run and records each in the journal before and after it runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backends.launch.errors import KIND_BY_CODE
from backends.launch.events import NewEvent, Span
from backends.launch.pipeline import VALIDATE, Step, Work
from backends.launch.run import Run
from backends.launch.serialization import digest
from backends.launch.states import SECTIONS, State
from backends.launch.worker_process import WorkerProcess
from gateway.contract import Json, WorkSpan
from gateway.errors import Fault, Kind

Progress = Callable[[str], Awaitable[None]]
SpanFactory = Callable[[str, Mapping[str, str | int]], WorkSpan]
"""`Host.span`. Each work item becomes a span below the call that started it."""
_COMPLETED: Final = ("finished", "skipped")


@dataclass(frozen=True, slots=True)
class Job:
    """Exclusive access to one run while its lease is held."""

    run: Run
    span: Span
    process: WorkerProcess
    progress: Progress
    start_span: SpanFactory
    before_drafting: "Callable[[Job], Awaitable[None]] | None" = None
    """Has a model draft sections, where one is configured."""

    async def take_step(self, step: Step) -> None:
        """Run all work of the step, then move the run to the step's target state."""
        if step.target is State.DRAFT_READY and self.before_drafting is not None:
            await self.before_drafting(self)
        for work in step.works:
            if work.per_section:
                await self._run_sections(work, list((await self.snapshot())["section_states"]))
            else:
                await self.run_work(work)
        await self.move(step.target, self._section_events(step.target, await self.snapshot()))
        await self.progress(step.target)

    async def run_work(self, work: Work, scope: str = "run", parameters: Json | None = None) -> Json:
        """Run one work item and return its result. Raises the item's `Fault`."""
        queued = await asyncio.to_thread(self._prepare, work, scope)
        await self.record([NewEvent("WORK_ITEM_QUEUED", queued.item, queued.span)])
        return await self._run_queued(queued, parameters)

    async def _run_sections(self, work: Work, sections: list[str]) -> None:
        """Queue one item per section in section order, then run them concurrently in the worker's process pool.

        After a failure, running items finish and no further item starts. Raises the fault of the first failed section
        in section order.
        """
        queue = [await asyncio.to_thread(self._prepare, work, section) for section in sections]
        await self.record([NewEvent("WORK_ITEM_QUEUED", each.item, each.span) for each in queue])
        slots, failed = asyncio.Semaphore(self.process.pool_size), asyncio.Event()

        async def run_section(queued: _QueuedItem) -> None:
            async with slots:
                if failed.is_set():
                    return
                try:
                    await self._run_queued(queued)
                except BaseException:
                    failed.set()
                    raise
            await self.progress(f"{State.DRAFTING} {queued.scope}")

        for outcome in await asyncio.gather(*map(run_section, queue), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _run_queued(self, queued: "_QueuedItem", parameters: Json | None = None) -> Json:
        if queued.is_done:
            item_ref = {"work_item_id": queued.item["work_item_id"]}
            await self.record([NewEvent("WORK_ITEM_SKIPPED", item_ref, queued.span)])
            return {}
        with queued.work_span:
            return await self._execute(queued, parameters)

    async def _execute(self, queued: "_QueuedItem", parameters: Json | None) -> Json:
        work, span, item_ref = queued.work, queued.span, {"work_item_id": queued.item["work_item_id"]}
        await self.record([NewEvent("WORK_ITEM_STARTED", item_ref, span)])
        outcome: Json = {"written": [], "events": [], "result": {}}
        try:
            outcome = await self.process.run_item(work.worker, queued.scope, parameters, parallel=work.per_section)
            failure = _decode_failure(outcome)
        except Fault as fault:
            failure = fault
        new_events = [NewEvent(each["type"], each["payload"], span) for each in outcome["events"]]
        new_events += [
            NewEvent("ARTIFACT_WRITTEN", {**each, "writer_worker": work.title}, span) for each in outcome["written"]
        ]
        if failure is not None:
            code = failure.code or failure.kind.upper()
            error = {"code": code, "message": failure.message, "details": failure.details}
            await self.record([*new_events, NewEvent("WORK_ITEM_FAILED", {**item_ref, "error": error}, span)])
            raise failure
        outputs = [each["name"] for each in outcome["written"]]
        await self.record([*new_events, NewEvent("WORK_ITEM_FINISHED", {**item_ref, "outputs": outputs}, span)])
        return outcome["result"]

    async def validate(self) -> Json:
        """Run the gates, record opened and resolved issues, and return the report."""
        await self.run_work(VALIDATE)
        report = await asyncio.to_thread(read_report, self.run)
        assert report is not None
        known = {issue["issue_id"]: issue for issue in (await self.snapshot())["issues"]}
        found = {issue["issue_id"]: issue for issue in report["issues"]}
        opened = [issue for key, issue in found.items() if known.get(key, {}).get("status") != "OPEN"]
        resolved = [key for key, issue in known.items() if issue["status"] != "RESOLVED" and key not in found]
        new_events = [NewEvent("ISSUE_OPENED", {"issue": issue}, self.span) for issue in opened]
        new_events += [NewEvent("ISSUE_RESOLVED", {"issue_id": key}, self.span) for key in resolved]
        await self.record(new_events)
        await self.progress("VALIDATED")
        return report

    async def apply_report(self, report: Json) -> State:
        """Move a run in VALIDATING to READY_FOR_PR, or mark the sections with issues as blocked."""
        if report["ok"]:
            await self.move(State.READY_FOR_PR, self._section_events(State.READY_FOR_PR, await self.snapshot()))
            return State.READY_FOR_PR
        blocked = _blocked_sections(report, await self.snapshot())
        await self.record([_section_event(name, "BLOCKED", self.span) for name in blocked])
        return State.VALIDATING

    async def move(self, state: State, extra_events: Sequence[NewEvent] = ()) -> None:
        await asyncio.to_thread(self.run.move, state, self.span, extra_events=extra_events)

    async def rewind(self, state: State, reason: str) -> None:
        await asyncio.to_thread(self.run.move, state, self.span, rewind=reason)

    async def snapshot(self) -> Json:
        return await asyncio.to_thread(self.run.snapshot)

    async def record(self, new_events: Sequence[NewEvent]) -> None:
        """Append events to the run's journal. Raises `CANCELLED` if the run was cancelled."""
        if new_events:
            await asyncio.to_thread(self.run.record_unless_cancelled, new_events)

    def _prepare(self, work: Work, scope: str) -> "_QueuedItem":
        before = self.run.snapshot()
        inputs = _inputs(work, before, digest((self.run.folder / "run_config.yaml").read_bytes()))
        item = _new_item(self.run.run_id, work, scope, before, inputs)
        done = not work.always and self._is_up_to_date(work, scope, before, inputs)
        work_span = self.start_span(work.title, {"scope": scope, "attempt": item["attempt"], "run_id": self.run.run_id})
        return _QueuedItem(work, scope, item, work_span, done)

    def _section_events(self, target: State, snapshot: Json) -> list[NewEvent]:
        state = _SECTION_STATES.get(target)
        return [] if state is None else [_section_event(name, state, self.span) for name in snapshot["section_states"]]

    def _is_up_to_date(self, work: Work, scope: str, snapshot: Json, inputs: Json) -> bool:
        """Whether the last completed item used the same inputs and its outputs are unchanged."""
        done = [item for item in _matching_items(work, scope, snapshot) if item["status"] in _COMPLETED]
        finished = [item for item in done if item["status"] == "finished"]
        if not finished or done[-1]["inputs"] != inputs or finished[-1]["inputs"] != inputs:
            return False
        index = snapshot["artifacts_index"]
        return all(name in index and _is_intact(self.run, index[name]) for name in finished[-1]["outputs"])


@dataclass(frozen=True, slots=True)
class _QueuedItem:
    """A queued work item. `is_done` means that its outputs are up to date and it can be skipped."""

    work: Work
    scope: str
    item: Json
    work_span: WorkSpan
    is_done: bool

    @property
    def span(self) -> Span:
        """The span ids of the work item, shared by journal and trace."""
        return Span.from_position(self.work_span.position)


_SECTION_STATES: Final = {
    State.PLAN_READY: "OUTLINED",
    State.DRAFT_READY: "DRAFTED",
    State.LINKING: "MERGED_IN_WORKTREE",
    State.READY_FOR_PR: "DONE",
}


def read_report(run: Run) -> Json | None:
    """Return the last validation report, or None before the first validation."""
    path = run.folder / "artifacts" / "validation_report.json"
    if not path.is_file():
        return None
    return json.loads(path.read_bytes())


def _inputs(work: Work, snapshot: Json, config: str) -> Json:
    index = snapshot["artifacts_index"]
    names = [name for input_name in work.inputs for name in index if name == input_name or _is_draft(name, input_name)]
    return {"run_config": config, **{name: index[name]["sha256"] for name in sorted(names)}}


def _is_draft(name: str, input_name: str) -> bool:
    return input_name == "drafts/" and name.startswith("drafts/")


def _matching_items(work: Work, scope: str, snapshot: Json) -> list[Json]:
    return [item for item in snapshot["work_items"] if (item["worker"], item["scope_key"]) == (work.title, scope)]


def _new_item(run_id: str, work: Work, scope: str, snapshot: Json, inputs: Json) -> Json:
    attempt = len(_matching_items(work, scope, snapshot)) + 1
    identity = f"{run_id}:{work.title}:{attempt}:{scope}"
    return {
        "work_item_id": identity,
        "worker": work.title,
        "attempt": attempt,
        "scope_key": scope,
        "inputs": inputs,
        "outputs": [],
    }


def _is_intact(run: Run, artifact: Json) -> bool:
    path = run.folder / artifact["path"]
    return path.is_file() and digest(path.read_bytes()) == artifact["sha256"]


def _decode_failure(outcome: Json) -> Fault | None:
    if (crash := outcome.get("crash")) is not None:
        return Fault(Kind.INTERNAL, "A work item failed.", code="INTERNAL", details={"cause_class": crash})
    fault_data: Any = outcome.get("fault")
    if fault_data is None:
        return None
    kind = KIND_BY_CODE.get(fault_data["code"] or "", Kind(fault_data["kind"]))
    return Fault(
        kind,
        fault_data["message"],
        code=fault_data["code"],
        details=fault_data["details"],
        retryable=fault_data["retryable"],
        suggested_fix=fault_data["suggested_fix"],
    )


def _section_event(name: str, state: str, span: Span) -> NewEvent:
    return NewEvent("SECTION_STATE_CHANGED", {"section": name, "state": state}, span)


def _blocked_sections(report: Json, snapshot: Json) -> list[str]:
    """Return the sections that contain a page with an issue."""
    paths = [issue.get("location", {}).get("path", "") for issue in report["issues"] if issue["severity"] != "info"]
    drafts = [name for name in snapshot["artifacts_index"] if name.startswith("drafts/")]
    blocked = {
        name.split("/")[1]
        for name in drafts
        if any(name.endswith(path.removeprefix("work/site/")) for path in paths if path)
    }
    return [name for name in SECTIONS if name in blocked]
