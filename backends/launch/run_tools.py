"""Handlers of the tools that work on an existing run. Each returns the success payload without `ok`, or raises."""

import asyncio
from collections import Counter
from typing import Final

from backends.launch import artifacts, run_index
from backends.launch.errors import illegal_state
from backends.launch.fix_loop import fix_next, require_fixable
from backends.launch.job import Job, read_report
from backends.launch.publishing import Publisher
from backends.launch.run import Run, start_and_end
from backends.launch.run_index import Entry
from backends.launch.run_scheduler import RunScheduler
from backends.launch.run_store import RunStore
from backends.launch.states import TERMINAL, VALIDATABLE, State
from backends.launch.tool_call import ToolCall
from gateway.contract import Caller, Host, Json

_TERMINAL_VALUES: Final = frozenset(state.value for state in TERMINAL)


class RunTools:
    """Handlers for status, artifacts, validation, fixes, resume, cancel and pull requests."""

    def __init__(self, host: Host, run_store: RunStore, scheduler: RunScheduler, publishing: Publisher) -> None:
        self._host = host
        self._run_store = run_store
        self._scheduler = scheduler
        self._publishing = publishing

    # ---- read-only tools ----

    async def get_status(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def get_artifact(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        return {
            "run_id": run.run_id,
            "artifact": await asyncio.to_thread(artifacts.read, run, call.arguments["artifact_name"]),
        }

    async def list_runs(self, call: ToolCall) -> Json:
        filters: Json = call.arguments.get("filter", {})
        found = await run_index.list_entries(self._host.store(call.caller), filters.get("product_slug"))
        described = [await self._describe_entry(call.caller, entry) for entry in found]
        return {"runs": [each for each in described if each["state"] == filters.get("state", each["state"])]}

    async def _describe_entry(self, caller: Caller, entry: Entry) -> Json:
        described = {
            name: getattr(entry, name) for name in ("run_id", "product_slug", "state", "started_at", "finished_at")
        }
        if entry.state not in _TERMINAL_VALUES:
            # The journal is authoritative; after a crash, the index may be outdated.
            known = await asyncio.to_thread(self._run_store.run(caller, entry.run_id).events)
            described["state"] = await asyncio.to_thread(self._run_store.run(caller, entry.run_id).state)
            described["finished_at"] = start_and_end(known)[1]
        return described

    async def get_telemetry(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        events = await asyncio.to_thread(run.events)
        kinds = Counter(event["type"] for event in events)
        summary = {
            "total_events": len(events),
            "event_types": dict(sorted(kinds.items())),
            "first_event": events[0]["ts"],
            "last_event": events[-1]["ts"],
        }
        return {"run_id": run.run_id, "events": events, "summary": summary}

    # ---- tools that change a run ----

    async def validate(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        await asyncio.to_thread(_require_validatable, run)

        async def work(job: Job) -> Json:
            state = await asyncio.to_thread(_require_validatable, run)
            report = await job.validate()
            if state is State.READY_FOR_PR and not report["ok"]:
                await job.rewind(State.VALIDATING, "VALIDATION_REWIND")
            if state in (State.LINKING, State.FIXING):
                await job.move(State.VALIDATING)
            if state is not State.READY_FOR_PR or not report["ok"]:
                await job.apply_report(report)
            return report

        report = await self._scheduler.run_job(call.caller, run, call.span, call.progress, work)
        return {"run_id": run.run_id, "validation_report": report}

    async def fix_next(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        await asyncio.to_thread(require_fixable, run)
        fixed = await self._scheduler.run_job(call.caller, run, call.span, call.progress, fix_next)
        return {"run_id": run.run_id, **fixed}

    async def resume(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        state = await asyncio.to_thread(run.state)
        if state in TERMINAL:
            raise illegal_state(run.run_id, state, f"The run has already ended with state {state}.")
        await self._scheduler.resume(call.caller, run, call.span, call.progress, call.model)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def cancel(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        await asyncio.to_thread(run.cancel, call.span)
        self._scheduler.stop(call.caller, run)
        await self._scheduler.update_index(call.caller, run)
        return {"run_id": run.run_id, "cancelled": True, "state": State.CANCELLED}

    async def open_pr(self, call: ToolCall) -> Json:
        run = await self._run_store.get(call.caller, call.run_id)
        await asyncio.to_thread(_require_ready, run)

        async def work(job: Job) -> Json:
            await asyncio.to_thread(_require_ready, run)
            return await self._publishing.open_pr(job, self._host.folder(call.caller))

        pull = await self._scheduler.run_job(call.caller, run, call.span, call.progress, work)
        return {"run_id": run.run_id, **pull}


def status(run: Run) -> Json:
    """Return the RunStatus object of the contract."""
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


def _require_validatable(run: Run) -> State:
    state = run.state()
    if state not in VALIDATABLE or not (run.folder / "work" / "site").is_dir():
        raise illegal_state(run.run_id, state, f"A run in {state} has nothing to validate.")
    return state


def _require_ready(run: Run) -> None:
    state, report = run.state(), read_report(run)
    if state is not State.READY_FOR_PR or report is None or not report["ok"]:
        raise illegal_state(
            run.run_id, state, "A pull request requires a run in READY_FOR_PR with a passing validation report."
        )
