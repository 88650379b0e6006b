"""Work on one run: every piece is told to the journal before and after it is done."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backends.launch.errors import KINDS
from backends.launch.events import News, Span
from backends.launch.pipeline import VALIDATE, Step, Work
from backends.launch.run import Run
from backends.launch.serialization import digest
from backends.launch.states import SECTIONS, State
from backends.launch.worker_process import Workshop
from gateway.contract import Json, WorkSpan
from gateway.errors import Fault, Kind

Progress = Callable[[str], Awaitable[None]]
Spans = Callable[[str, Mapping[str, str | int]], WorkSpan]
"""`Home.span`: every work item is a span of the trace of the call that had it done."""
_DONE: Final = ("finished", "skipped")


@dataclass(frozen=True, slots=True)
class Job:
    run: Run
    span: Span
    workshop: Workshop
    progress: Progress
    spans: Spans

    async def take(self, step: Step) -> None:
        """Do what leads to the step's target, then be there."""
        for work in step.works:
            if work.per_section:
                await self._do_sections(work, list((await self.snapshot())["section_states"]))
            else:
                await self.do(work)
        await self.move(step.target, self._sections(step.target, await self.snapshot()))
        await self.progress(step.target)

    async def do(self, work: Work, scope: str = "run", given: Json | None = None) -> Json:
        """One work item; what it answers. Raises the `Fault` that it failed with."""
        queued = await asyncio.to_thread(self._look, work, scope)
        await self._tell([News("WORK_ITEM_QUEUED", queued.item, queued.span)])
        return await self._carry_out(queued, given)

    async def _do_sections(self, work: Work, sections: list[str]) -> None:
        """Queued in the order of the sections, then done side by side, as many at a time as there are hands.

        When one fails, those that are under way are finished and no other is begun. Raises what the first of the
        sections failed with, whichever was the first to fail.
        """
        queue = [await asyncio.to_thread(self._look, work, section) for section in sections]
        await self._tell([News("WORK_ITEM_QUEUED", each.item, each.span) for each in queue])
        hands, failed = asyncio.Semaphore(self.workshop.hands), asyncio.Event()

        async def one(queued: _Queued) -> None:
            async with hands:
                if failed.is_set():
                    return
                try:
                    await self._carry_out(queued)
                except BaseException:
                    failed.set()
                    raise
            await self.progress(f"{State.DRAFTING} {queued.scope}")

        for outcome in await asyncio.gather(*map(one, queue), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _carry_out(self, queued: "_Queued", given: Json | None = None) -> Json:
        if queued.done:
            known = {"work_item_id": queued.item["work_item_id"]}
            await self._tell([News("WORK_ITEM_SKIPPED", known, queued.span)])
            return {}
        with queued.piece:
            return await self._work(queued, given)

    async def _work(self, queued: "_Queued", given: Json | None) -> Json:
        work, span, known = queued.work, queued.span, {"work_item_id": queued.item["work_item_id"]}
        await self._tell([News("WORK_ITEM_STARTED", known, span)])
        outcome: Json = {"written": [], "news": [], "result": {}}
        try:
            outcome = await self.workshop.do(work.worker, queued.scope, given, beside=work.per_section)
            failure = _failure(outcome)
        except Fault as fault:
            failure = fault
        left = [News(each["type"], each["payload"], span) for each in outcome["news"]]
        left += [News("ARTIFACT_WRITTEN", {**each, "writer_worker": work.title}, span) for each in outcome["written"]]
        if failure is not None:
            code = failure.code or failure.kind.upper()
            error = {"code": code, "message": failure.message, "details": failure.details}
            await self._tell([*left, News("WORK_ITEM_FAILED", {**known, "error": error}, span)])
            raise failure
        outputs = [each["name"] for each in outcome["written"]]
        await self._tell([*left, News("WORK_ITEM_FINISHED", {**known, "outputs": outputs}, span)])
        return outcome["result"]

    async def validate(self) -> Json:
        """Run the gates; the report, with what it opened and resolved told."""
        await self.do(VALIDATE)
        report = await asyncio.to_thread(read_report, self.run)
        assert report is not None
        known = {issue["issue_id"]: issue for issue in (await self.snapshot())["issues"]}
        found = {issue["issue_id"]: issue for issue in report["issues"]}
        opened = [issue for key, issue in found.items() if known.get(key, {}).get("status") != "OPEN"]
        gone = [key for key, issue in known.items() if issue["status"] != "RESOLVED" and key not in found]
        news = [News("ISSUE_OPENED", {"issue": issue}, self.span) for issue in opened]
        news += [News("ISSUE_RESOLVED", {"issue_id": key}, self.span) for key in gone]
        await self._tell(news)
        await self.progress("VALIDATED")
        return report

    async def settle(self, report: Json) -> State:
        """From VALIDATING to where the report leads: ready, or held until it is mended."""
        if report["ok"]:
            await self.move(State.READY_FOR_PR, self._sections(State.READY_FOR_PR, await self.snapshot()))
            return State.READY_FOR_PR
        blocked = _blocked(report, await self.snapshot())
        await self._tell([_section(name, "BLOCKED", self.span) for name in blocked])
        return State.VALIDATING

    async def move(self, state: State, news: Sequence[News] = ()) -> None:
        await asyncio.to_thread(self.run.move, state, self.span, news=news)

    async def rewind(self, state: State, reason: str) -> None:
        await asyncio.to_thread(self.run.move, state, self.span, rewind=reason)

    async def snapshot(self) -> Json:
        return await asyncio.to_thread(self.run.snapshot)

    async def _tell(self, news: Sequence[News]) -> None:
        if news:
            await asyncio.to_thread(self.run.record_if_alive, news)

    def _look(self, work: Work, scope: str) -> "_Queued":
        before = self.run.snapshot()
        inputs = _inputs(work, before, digest((self.run.folder / "run_config.yaml").read_bytes()))
        item = _item(self.run.run_id, work, scope, before, inputs)
        done = not work.always and self._still_good(work, scope, before, inputs)
        piece = self.spans(work.title, {"scope": scope, "attempt": item["attempt"], "run_id": self.run.run_id})
        return _Queued(work, scope, item, piece, done)

    def _sections(self, target: State, snapshot: Json) -> list[News]:
        state = _SECTION_STATES.get(target)
        return [] if state is None else [_section(name, state, self.span) for name in snapshot["section_states"]]

    def _still_good(self, work: Work, scope: str, snapshot: Json, inputs: Json) -> bool:
        """Whether it was done with these very inputs, and what it left is as it was left."""
        done = [item for item in _items(work, scope, snapshot) if item["status"] in _DONE]
        finished = [item for item in done if item["status"] == "finished"]
        if not finished or done[-1]["inputs"] != inputs or finished[-1]["inputs"] != inputs:
            return False
        index = snapshot["artifacts_index"]
        return all(name in index and _intact(self.run, index[name]) for name in finished[-1]["outputs"])


@dataclass(frozen=True, slots=True)
class _Queued:
    """A work item that is to be done, unless it is done already."""

    work: Work
    scope: str
    item: Json
    piece: WorkSpan
    done: bool

    @property
    def span(self) -> Span:
        """The same ids in the journal as in the trace."""
        return Span.at(self.piece.position)


_SECTION_STATES: Final = {
    State.PLAN_READY: "OUTLINED",
    State.DRAFT_READY: "DRAFTED",
    State.LINKING: "MERGED_IN_WORKTREE",
    State.READY_FOR_PR: "DONE",
}


def read_report(run: Run) -> Json | None:
    """The last validation report."""
    path = run.folder / "artifacts" / "validation_report.json"
    if not path.is_file():
        return None
    return json.loads(path.read_bytes())


def _inputs(work: Work, snapshot: Json, config: str) -> Json:
    index = snapshot["artifacts_index"]
    names = [name for wanted in work.inputs for name in index if name == wanted or _is_draft(name, wanted)]
    return {"run_config": config, **{name: index[name]["sha256"] for name in sorted(names)}}


def _is_draft(name: str, wanted: str) -> bool:
    return wanted == "drafts/" and name.startswith("drafts/")


def _items(work: Work, scope: str, snapshot: Json) -> list[Json]:
    return [item for item in snapshot["work_items"] if (item["worker"], item["scope_key"]) == (work.title, scope)]


def _item(run_id: str, work: Work, scope: str, snapshot: Json, inputs: Json) -> Json:
    attempt = len(_items(work, scope, snapshot)) + 1
    identity = f"{run_id}:{work.title}:{attempt}:{scope}"
    return {
        "work_item_id": identity,
        "worker": work.title,
        "attempt": attempt,
        "scope_key": scope,
        "inputs": inputs,
        "outputs": [],
    }


def _intact(run: Run, artifact: Json) -> bool:
    path = run.folder / artifact["path"]
    return path.is_file() and digest(path.read_bytes()) == artifact["sha256"]


def _failure(outcome: Json) -> Fault | None:
    if (crash := outcome.get("crash")) is not None:
        return Fault(Kind.INTERNAL, "A work item failed.", code="INTERNAL", details={"cause_class": crash})
    shown: Any = outcome.get("fault")
    if shown is None:
        return None
    kind = KINDS.get(shown["code"] or "", Kind(shown["kind"]))
    return Fault(
        kind,
        shown["message"],
        code=shown["code"],
        details=shown["details"],
        retryable=shown["retryable"],
        suggested_fix=shown["suggested_fix"],
    )


def _section(name: str, state: str, span: Span) -> News:
    return News("SECTION_STATE_CHANGED", {"section": name, "state": state}, span)


def _blocked(report: Json, snapshot: Json) -> list[str]:
    """The sections that hold a page with an issue."""
    paths = [issue.get("location", {}).get("path", "") for issue in report["issues"] if issue["severity"] != "info"]
    drafts = [name for name in snapshot["artifacts_index"] if name.startswith("drafts/")]
    held = {
        name.split("/")[1]
        for name in drafts
        if any(name.endswith(path.removeprefix("work/site/")) for path in paths if path)
    }
    return [name for name in SECTIONS if name in held]
