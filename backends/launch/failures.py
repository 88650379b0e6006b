"""What a run records when its work stops: a blocker that may pass, or the reason of its failure."""

import contextlib
import re
from typing import Final

from backends.launch.events import NewEvent, Span
from backends.launch.run import Run
from backends.launch.serialization import digest, write_atomic
from backends.launch.states import TERMINAL, State
from gateway.contract import Json
from gateway.errors import Fault

SUMMARY: Final = "failure_summary.md"
NEW_KEY: Final = "Start a run with a new idempotency_key; the same key returns this run."
PASSING_ISSUES: Final = frozenset({"GATE_MARKDOWN_LINT", "GATE_TIMEOUT"})
"""Issues that do not end a run: they pass with another try or an edit by hand."""
_PASSING_CODES: Final = frozenset({"TOOLCHAIN_MISSING", "TOOL_TIMEOUT"})
_PREFIX: Final = "iss_run_"


def may_pass(fault: Fault) -> bool:
    """Whether the same work may succeed later, so that the run is paused instead of failed."""
    return fault.retryable or fault.code in _PASSING_CODES


def pause(run: Run, span: Span, fault: Fault) -> None:
    """Record that the run waits in its state, with a blocker that `launch_resume` tries to pass."""
    code = fault.code or fault.kind.upper()
    paused = NewEvent("RUN_PAUSED", {"state": run.state(), "code": code}, span)
    fix = fault.suggested_fix or "Remove the cause and call launch_resume."
    run.record([paused, NewEvent("ISSUE_OPENED", {"issue": _issue(run, fault, fix)}, span)])


def resolve_pauses(run: Run, span: Span) -> None:
    """Resolve the blockers of earlier pauses, after the run has advanced."""
    issues = run.snapshot()["issues"]
    passed = [each["issue_id"] for each in issues if each["issue_id"].startswith(_PREFIX) and each["status"] == "OPEN"]
    if passed:
        run.record([NewEvent("ISSUE_RESOLVED", {"issue_id": each}, span) for each in passed])


def fail(run: Run, span: Span, fault: Fault) -> None:
    """Write the failure summary and move the run to FAILED with its reason."""
    state = run.state()
    summary = _summary(run, state, fault).encode()
    write_atomic(run.folder / "reports" / SUMMARY, summary)
    written = {"name": SUMMARY, "path": f"reports/{SUMMARY}", "sha256": digest(summary), "schema_id": ""}
    reason: Json = {"code": fault.code or fault.kind.upper(), "reason": fault.message, "work_item_id": _work_item(run)}
    extra_events = [
        NewEvent("ARTIFACT_WRITTEN", {**written, "writer_worker": "orchestrator"}, span),
        NewEvent("ISSUE_OPENED", {"issue": _issue(run, fault, fault.suggested_fix or NEW_KEY)}, span),
    ]
    if state in TERMINAL:
        run.record(extra_events[:1])
        return
    with contextlib.suppress(Fault):  # the run may have been cancelled in the meantime; it stays cancelled
        run.move(State.FAILED, span, extra_events=extra_events, failure=reason)


def _issue(run: Run, fault: Fault, fix: str) -> Json:
    code = fault.code or fault.kind.upper()
    return {
        "issue_id": f"{_PREFIX}{digest(f'{code}|{fault.message}'.encode())[:12]}",
        "gate": _worker(run),
        "severity": "blocker",
        "message": fault.message,
        "status": "OPEN",
        "error_code": code if re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code) else "INTERNAL",
        "suggested_fix": fix,
    }


def _work_item(run: Run) -> str:
    failed = [item for item in run.snapshot()["work_items"] if item["status"] == "failed"]
    return failed[-1]["work_item_id"] if failed else ""


def _worker(run: Run) -> str:
    item = _work_item(run)
    return item.split(":")[1] if item else "orchestrator"


def _summary(run: Run, state: State, fault: Fault) -> str:
    issues = [
        each
        for each in run.snapshot()["issues"]
        if each["status"] != "RESOLVED" and each["severity"] in ("blocker", "error")
    ]
    lines = [
        "# The run failed",
        "",
        fault.message,
        "",
        f"- State: {state}",
        f"- Code: {fault.code or fault.kind.upper()}",
        f"- Work item: {_work_item(run) or 'none'}",
        f"- To do: {fault.suggested_fix or NEW_KEY}",
    ]
    if issues:
        lines += ["", "## Open issues", "", *(f"- {each['gate']}: {each['message']}" for each in issues[:50])]
    return "\n".join(lines) + "\n"
