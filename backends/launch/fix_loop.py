"""One iteration of the fix loop: fix one issue and validate again. Fails the run when no fix is possible."""

import asyncio

from backends.launch.errors import illegal_state
from backends.launch.events import NewEvent
from backends.launch.failures import NEW_KEY, PASSING_ISSUES, fail
from backends.launch.gates.runner import failing_severities
from backends.launch.job import Job, read_report
from backends.launch.pipeline import FIX
from backends.launch.run import Run
from backends.launch.states import State
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def fix_next(job: Job) -> Json:
    """Fix one issue. A repair that opens new blockers is reverted and counted, and the next repair is tried.

    Raises `ILLEGAL_STATE` when there is nothing to fix, `FIX_EXHAUSTED` when no fix is possible.
    """
    report = await asyncio.to_thread(require_fixable, job.run)
    config = await asyncio.to_thread(lambda: job.run.config)
    limit = min(config["max_fix_attempts"], config["budgets"]["max_patch_attempts"])
    while True:
        attempts, reverted = await asyncio.to_thread(_attempts, job.run)
        if attempts >= limit:
            message = f"The run has used its {attempts} attempts."
            raise await _exhausted(job, report, "new_blocker" if reverted else "max_fix_attempts", message)
        await job.move(State.FIXING)
        await job.progress(State.FIXING)
        fixed = await job.run_work(FIX, "run", {"reverted": reverted})
        after = await job.validate()
        new = _new_blockers(report, after, fixed["fixed_issue_id"])
        if not new:
            break
        await job.run_work(FIX, "revert", {"patch_id": fixed["applied_patch_ids"][0]})
        payload = {"issue_id": fixed["fixed_issue_id"], "gates": new}
        await job.record([NewEvent("FIX_REVERTED", payload, job.span)])
        await job.validate()
        await job.move(State.VALIDATING)
    await job.move(State.VALIDATING)
    await job.apply_report(after)
    counted = [issue for issue in after["issues"] if issue["severity"] in failing_severities(config)]
    return {
        "fixed_issue_id": fixed["fixed_issue_id"],
        "applied_patch_ids": fixed["applied_patch_ids"],
        "remaining_blockers": len(counted),
        "validation_report": after,
    }


def _attempts(run: Run) -> tuple[int, Json]:
    """Return the number of repairs since the last resume, and how many of each issue were reverted."""
    count, reverted = 0, dict[str, int]()
    for event in run.events():
        payload = event["payload"]
        if event["type"] == "RUN_STATE_CHANGED" and payload.get("reason") == "RESUME_REWIND":
            count, reverted = 0, {}
        elif event["type"] == "WORK_ITEM_FINISHED":
            worker, _, scope = payload["work_item_id"].split(":", 3)[1:]
            count += worker == FIX.title and scope == "run"
        elif event["type"] == "FIX_REVERTED":
            reverted[payload["issue_id"]] = reverted.get(payload["issue_id"], 0) + 1
    return count, reverted


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


async def _exhausted(job: Job, report: Json, reason: str, message: str) -> Fault:
    """Return the fault to raise. The run fails, unless all that is left may pass."""
    severities = failing_severities(await asyncio.to_thread(lambda: job.run.config))
    left = [issue for issue in report["issues"] if issue["severity"] in severities]
    passing = all(issue.get("error_code") in PASSING_ISSUES for issue in left)
    fix = "Edit the pages and call launch_validate, or call launch_resume for new attempts." if passing else NEW_KEY
    state = State.VALIDATING if passing else State.FAILED
    fault = Fault(
        Kind.ILLEGAL_STATE,
        message,
        code="FIX_EXHAUSTED",
        retryable=passing,
        details={"run_id": job.run.run_id, "reason": reason, "current_state": state},
        suggested_fix=fix,
    )
    await job.record([NewEvent("FIX_EXHAUSTED", {"reason": reason}, job.span)])
    if not passing:
        await asyncio.to_thread(fail, job.run, job.span, fault)
    return fault
