"""W8: fixes exactly one issue, the first one in sort order that has a repair, and records a patch."""

from pathlib import Path

from backends.launch.failures import PASSING_ISSUES
from backends.launch.gates.context import GateContext
from backends.launch.gates.runner import failing_severities, issue_order
from backends.launch.paths import resolve_allowed
from backends.launch.serialization import write_atomic
from backends.launch.workers import link, patches
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.repairs import repaired_pages
from gateway.contract import Json
from gateway.errors import Fault, Kind


def run(context: WorkerContext) -> None:
    parameters = dict(context.result)
    context.result.clear()
    if context.scope == "revert":
        _revert(context, parameters["patch_id"])
        return
    gate_context = GateContext(context)
    report = context.read("validation_report.json")
    reverted: Json = parameters.get("reverted", {})
    open_issues = [issue for issue in report["issues"] if issue["severity"] in failing_severities(context.config)]
    for issue in sorted(open_issues, key=issue_order):
        path = page_of(issue)
        if path is None or not any(page["output_path"] == path for page in gate_context.plan):
            continue
        texts = repaired_pages(gate_context, issue, path)[reverted.get(issue["issue_id"], 0) :]
        if texts:
            _apply_repair(context, gate_context, issue, path, texts[0])
            return
    passing = all(issue.get("error_code") in PASSING_ISSUES for issue in open_issues)
    raise Fault(
        Kind.ILLEGAL_STATE,
        "No repair is known for any of the open issues.",
        code="FIX_EXHAUSTED",
        retryable=passing,
        details={"reason": "no_repair", "issue_ids": [issue["issue_id"] for issue in open_issues]},
    )


def _revert(context: WorkerContext, patch_id: str) -> None:
    """Undo the last patch: restore the page and remove the patch from the bundle."""
    bundle = context.read("patch_bundle.json")
    last = bundle["patches"][-1]
    assert last["patch_id"] == patch_id
    backup = _backup(context, patch_id)
    target = resolve_allowed(context.site, last["path"], context.config["allowed_paths"])
    if backup.is_file():
        write_atomic(target, backup.read_bytes())
    else:
        target.unlink(missing_ok=True)
    context.write("patch_bundle.json", {**bundle, "patches": bundle["patches"][:-1]})


def _backup(context: WorkerContext, patch_id: str) -> Path:
    return context.folder / "work" / "before_fix" / f"{patch_id}.md"


def page_of(issue: Json) -> str | None:
    """Return the path of the issue's page in the worktree, or None if the issue is not about a page."""
    path: str = issue.get("location", {}).get("path", "")
    return path.removeprefix("work/site/") if path.startswith("work/site/") else None


def _apply_repair(context: WorkerContext, gate_context: GateContext, issue: Json, path: str, after: str) -> None:
    bundle = context.read("patch_bundle.json")
    before = gate_context.pages.get(path)
    patch_id = patches.format_patch_id(len(bundle["patches"]) + 1)
    patch = patches.build_patch(patch_id, path, None if before is None else before.encode(), after.encode())
    backup = _backup(context, patch_id)
    backup.unlink(missing_ok=True)
    if before is not None:
        write_atomic(backup, (context.site / path).read_bytes())
    # Write the bundle first: after a crash in between, the linker detects the changed bundle and runs again.
    context.write("patch_bundle.json", {**bundle, "patches": [*bundle["patches"], patch]})
    outcome = patches.apply(patch, context.site, context.config["allowed_paths"])
    if outcome != "applied":
        raise Fault(
            Kind.ILLEGAL_STATE,
            "The repair cannot be applied to the page.",
            code="FIX_EXHAUSTED",
            details={"reason": outcome, "issue_ids": [issue["issue_id"]]},
        )
    context.write_file(
        "reports/diff_report.md", link.diff_report(context, bundle["patches"]).encode(), "diff_report.md"
    )
    report = f"fix_{issue['issue_id']}.md"
    context.write_file(f"reports/{report}", _fix_report(issue, path, patch_id).encode(), report)
    context.result.update(fixed_issue_id=issue["issue_id"], applied_patch_ids=[patch_id])


def _fix_report(issue: Json, path: str, patch_id: str) -> str:
    return (
        f"# {issue['issue_id']}\n\n"
        f"- Gate: {issue['gate']}\n- Code: {issue['error_code']}\n- Page: {path}\n- Patch: {patch_id}\n\n"
        f"{issue['message']}\n"
    )
