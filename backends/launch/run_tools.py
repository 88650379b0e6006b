"""What the tools for a run that exists do. Each answers its success payload without `ok`, or raises."""

import asyncio
from collections import Counter
from typing import Final

from backends.launch import artifacts, run_index
from backends.launch.errors import illegal_state
from backends.launch.fix_loop import fix_next, to_be_mended
from backends.launch.job import Job, read_report
from backends.launch.publishing import Publishing
from backends.launch.run import Run, times
from backends.launch.run_index import Entry
from backends.launch.run_scheduler import Conductor
from backends.launch.run_store import Shelf
from backends.launch.states import TERMINAL, VALIDATABLE, State
from backends.launch.tool_call import Ask
from gateway.contract import Caller, Host, Json

_FINAL: Final = frozenset(state.value for state in TERMINAL)


class Launches:
    def __init__(self, home: Host, shelf: Shelf, conductor: Conductor, publishing: Publishing) -> None:
        self._home = home
        self._shelf = shelf
        self._conductor = conductor
        self._publishing = publishing

    # ---- looking ----

    async def get_status(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def get_artifact(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        return {
            "run_id": run.run_id,
            "artifact": await asyncio.to_thread(artifacts.read, run, ask.arguments["artifact_name"]),
        }

    async def list_runs(self, ask: Ask) -> Json:
        wanted: Json = ask.arguments.get("filter", {})
        found = await run_index.entries(self._home.store(ask.caller), wanted.get("product_slug"))
        shown = [await self._listed(ask.caller, entry) for entry in found]
        return {"runs": [each for each in shown if each["state"] == wanted.get("state", each["state"])]}

    async def _listed(self, caller: Caller, entry: Entry) -> Json:
        shown = {
            name: getattr(entry, name) for name in ("run_id", "product_slug", "state", "started_at", "finished_at")
        }
        if entry.state not in _FINAL:
            # The journal is the truth; the index may be a crash behind it.
            known = await asyncio.to_thread(self._shelf.run(caller, entry.run_id).events)
            shown["state"] = await asyncio.to_thread(self._shelf.run(caller, entry.run_id).state)
            shown["finished_at"] = times(known)[1]
        return shown

    async def telemetry(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        events = await asyncio.to_thread(run.events)
        kinds = Counter(event["type"] for event in events)
        summary = {
            "total_events": len(events),
            "event_types": dict(sorted(kinds.items())),
            "first_event": events[0]["ts"],
            "last_event": events[-1]["ts"],
        }
        return {"run_id": run.run_id, "events": events, "summary": summary}

    # ---- moving ----

    async def validate(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        await asyncio.to_thread(_validatable, run)

        async def work(job: Job) -> Json:
            state = await asyncio.to_thread(_validatable, run)
            report = await job.validate()
            if state is State.READY_FOR_PR and not report["ok"]:
                await job.rewind(State.VALIDATING, "VALIDATION_REWIND")
            if state in (State.LINKING, State.FIXING):
                await job.move(State.VALIDATING)
            if state is not State.READY_FOR_PR or not report["ok"]:
                await job.settle(report)
            return report

        report = await self._conductor.together(ask.caller, run, ask.span, ask.progress, work)
        return {"run_id": run.run_id, "validation_report": report}

    async def fix_next(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        await asyncio.to_thread(to_be_mended, run)
        fixed = await self._conductor.together(ask.caller, run, ask.span, ask.progress, fix_next)
        return {"run_id": run.run_id, **fixed}

    async def resume(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        state = await asyncio.to_thread(run.state)
        if state in TERMINAL:
            raise illegal_state(run.run_id, state, f"The run has ended as {state}.")
        await self._conductor.resume(ask.caller, run, ask.span, ask.progress)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def cancel(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        await asyncio.to_thread(run.cancel, ask.span)
        self._conductor.stop(ask.caller, run)
        await self._conductor.index(ask.caller, run)
        return {"run_id": run.run_id, "cancelled": True, "state": State.CANCELLED}

    async def open_pr(self, ask: Ask) -> Json:
        run = await self._shelf.known(ask.caller, ask.run_id)
        await asyncio.to_thread(_ready, run)

        async def work(job: Job) -> Json:
            await asyncio.to_thread(_ready, run)
            return await self._publishing.open_pr(job, self._home.folder(ask.caller))

        pull = await self._conductor.together(ask.caller, run, ask.span, ask.progress, work)
        return {"run_id": run.run_id, **pull}


def status(run: Run) -> Json:
    snapshot = run.snapshot()
    index = snapshot["artifacts_index"]
    issues = [issue for issue in snapshot["issues"] if issue["status"] != "RESOLVED"]
    return {
        "run_id": run.run_id,
        "state": snapshot["run_state"],
        "section_states": snapshot["section_states"],
        "open_issues": [
            {"issue_id": each["issue_id"], "severity": each["severity"], "gate": each["gate"], "title": each["message"]}
            for each in issues
        ],
        "artifacts": [
            {"name": name, "sha256": index[name]["sha256"]}
            for name in sorted(index)
            if index[name]["path"].startswith(("artifacts/", "reports/"))
        ],
    }


def _validatable(run: Run) -> State:
    state = run.state()
    if state not in VALIDATABLE or not (run.folder / "work" / "site").is_dir():
        raise illegal_state(run.run_id, state, f"A run in {state} has nothing to validate.")
    return state


def _ready(run: Run) -> None:
    state, report = run.state(), read_report(run)
    if state is not State.READY_FOR_PR or report is None or not report["ok"]:
        raise illegal_state(
            run.run_id, state, "Only a run that is READY_FOR_PR, with a report that is ok, has a pull request."
        )
