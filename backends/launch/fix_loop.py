"""One iteration of the fix loop: fix one issue and validate again. Fails the run when no fix is possible."""

import asyncio

from backends.launch.errors import illegal_state
from backends.launch.events import NewEvent
from backends.launch.gates.runner import failing_severities
from backends.launch.job import Job, read_report
from backends.launch.pipeline import FIX
from backends.launch.run import Run
from backends.launch.states import State
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def fix_next(job: Job) -> Json:
    """Raises `ILLEGAL_STATE` when there is nothing to fix, `FIX_EXHAUSTED` when no fix is possible."""
    run = job.run
    report = await asyncio.to_thread(require_fixable, run)
    snapshot = await job.snapshot()
    config = await asyncio.to_thread(lambda: run.config)
    attempts = sum(item["worker"] == FIX.title and item["status"] == "finished" for item in snapshot["work_items"])
    if attempts >= min(config["max_fix_attempts"], config["budgets"]["max_patch_attempts"]):
        raise await _fail_exhausted(job, "max_fix_attempts", f"The run has used its {attempts} attempts.")
    await job.move(State.FIXING)
    await job.progress(State.FIXING)
    fixed = await job.run_work(FIX)
    after = await job.validate()
    await job.move(State.VALIDATING)
    if new := _new_blockers(report, after, fixed["fixed_issue_id"]):
        raise await _fail_exhausted(job, "new_blocker", f"The repair opened new blockers in {', '.join(new)}.")
    await job.apply_report(after)
    counted = [issue for issue in after["issues"] if issue["severity"] in failing_severities(config)]
    return {
        "fixed_issue_id": fixed["fixed_issue_id"],
        "applied_patch_ids": fixed["applied_patch_ids"],
        "remaining_blockers": len(counted),
        "validation_report": after,
    }


def require_fixable(run: Run) -> Json:
    """Return the report of a run that can be fixed. Raises `ILLEGAL_STATE`."""
    state, report = run.state(), read_report(run)
    if state is not State.VALIDATING or report is None or report["ok"]:
        raise illegal_state(run.run_id, state, "A fix requires a run in VALIDATING with a failing validation report.")
    return report


def _new_blockers(before: Json, after: Json, fixed: str) -> list[str]:
    """Return the gates with a new blocker, except the gate of the fixed issue."""
    known = {issue["issue_id"] for issue in before["issues"]}
    fixed_gate = next((issue["gate"] for issue in before["issues"] if issue["issue_id"] == fixed), "")
    new = {
        issue["gate"] for issue in after["issues"] if issue["severity"] == "blocker" and issue["issue_id"] not in known
    }
    return sorted(new - {fixed_gate})


async def _fail_exhausted(job: Job, reason: str, message: str) -> Fault:
    """Move the run to FAILED and return the fault to raise."""
    await job.move(State.FAILED, [NewEvent("FIX_EXHAUSTED", {"reason": reason}, job.span)])
    return Fault(
        Kind.ILLEGAL_STATE,
        message,
        code="FIX_EXHAUSTED",
        details={"run_id": job.run.run_id, "reason": reason, "current_state": State.FAILED},
    )
