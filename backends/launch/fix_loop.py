"""One turn of the fix loop: mend one issue, validate again, and stop for good where no turn can help."""

import asyncio

from backends.launch.errors import illegal_state
from backends.launch.events import News
from backends.launch.gates.runner import failing
from backends.launch.job import Job, read_report
from backends.launch.pipeline import FIX
from backends.launch.run import Run
from backends.launch.states import State
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def fix_next(job: Job) -> Json:
    """Raises `ILLEGAL_STATE` when there is nothing to mend, `FIX_EXHAUSTED` when there is no way to."""
    run = job.run
    report = await asyncio.to_thread(to_be_mended, run)
    snapshot = await job.snapshot()
    config = await asyncio.to_thread(lambda: run.config)
    attempts = sum(item["worker"] == FIX.title and item["status"] == "finished" for item in snapshot["work_items"])
    if attempts >= min(config["max_fix_attempts"], config["budgets"]["max_patch_attempts"]):
        raise await _exhausted(job, "max_fix_attempts", f"The run has used its {attempts} attempts.")
    await job.move(State.FIXING)
    await job.progress(State.FIXING)
    fixed = await job.do(FIX)
    after = await job.validate()
    await job.move(State.VALIDATING)
    if new := _new_blockers(report, after, fixed["fixed_issue_id"]):
        raise await _exhausted(job, "new_blocker", f"The repair opened new blockers in {', '.join(new)}.")
    await job.settle(after)
    counted = [issue for issue in after["issues"] if issue["severity"] in failing(config)]
    return {
        "fixed_issue_id": fixed["fixed_issue_id"],
        "applied_patch_ids": fixed["applied_patch_ids"],
        "remaining_blockers": len(counted),
        "validation_report": after,
    }


def to_be_mended(run: Run) -> Json:
    """The report of a run that can be mended."""
    state, report = run.state(), read_report(run)
    if state is not State.VALIDATING or report is None or report["ok"]:
        raise illegal_state(run.run_id, state, "Only a run in VALIDATING, with a report that is not ok, can be mended.")
    return report


def _new_blockers(before: Json, after: Json, fixed: str) -> list[str]:
    """Gates other than the mended one in which a blocker appeared."""
    known = {issue["issue_id"] for issue in before["issues"]}
    mended = next((issue["gate"] for issue in before["issues"] if issue["issue_id"] == fixed), "")
    new = {
        issue["gate"] for issue in after["issues"] if issue["severity"] == "blocker" and issue["issue_id"] not in known
    }
    return sorted(new - {mended})


async def _exhausted(job: Job, reason: str, message: str) -> Fault:
    await job.move(State.FAILED, [News("FIX_EXHAUSTED", {"reason": reason}, job.span)])
    return Fault(
        Kind.ILLEGAL_STATE,
        message,
        code="FIX_EXHAUSTED",
        details={"run_id": job.run.run_id, "reason": reason, "current_state": State.FAILED},
    )
