"""W8: mend exactly one issue, the first in the one order that has a repair, and leave a patch for it."""

from backends.launch.gates.context import Subject
from backends.launch.gates.runner import failing, order
from backends.launch.workers import link, patches
from backends.launch.workers.context import Bench
from backends.launch.workers.repairs import repaired
from gateway.contract import Json
from gateway.errors import Fault, Kind


def run(bench: Bench) -> None:
    subject = Subject(bench)
    report = bench.read("validation_report.json")
    open_issues = [issue for issue in report["issues"] if issue["severity"] in failing(bench.config)]
    for issue in sorted(open_issues, key=order):
        path = page_of(issue)
        if path is None or not any(page["output_path"] == path for page in subject.plan):
            continue
        after = repaired(subject, issue, path)
        if after is not None and after != subject.pages.get(path):
            _mend(bench, subject, issue, path, after)
            return
    raise Fault(
        Kind.ILLEGAL_STATE,
        "None of the open issues has a repair.",
        code="FIX_EXHAUSTED",
        details={"reason": "no_repair", "issue_ids": [issue["issue_id"] for issue in open_issues]},
    )


def page_of(issue: Json) -> str | None:
    """The page that an issue lies in, by its path in the worktree."""
    path: str = issue.get("location", {}).get("path", "")
    return path.removeprefix("work/site/") if path.startswith("work/site/") else None


def _mend(bench: Bench, subject: Subject, issue: Json, path: str, after: str) -> None:
    bundle = bench.read("patch_bundle.json")
    before = subject.pages.get(path)
    patch_id = patches.numbered(len(bundle["patches"]) + 1)
    patch = patches.change(patch_id, path, None if before is None else before.encode(), after.encode())
    # The bundle first: a crash in between leaves a bundle that the linker sees it must redo.
    bench.write("patch_bundle.json", {**bundle, "patches": [*bundle["patches"], patch]})
    outcome = patches.apply(patch, bench.site, bench.config["allowed_paths"])
    if outcome != "applied":
        raise Fault(
            Kind.ILLEGAL_STATE,
            "The repair does not fit the page.",
            code="FIX_EXHAUSTED",
            details={"reason": outcome, "issue_ids": [issue["issue_id"]]},
        )
    bench.leave("reports/diff_report.md", link.diff_report(bench, bundle["patches"]).encode(), "diff_report.md")
    report = f"fix_{issue['issue_id']}.md"
    bench.leave(f"reports/{report}", _story(issue, path, patch_id).encode(), report)
    bench.result.update(fixed_issue_id=issue["issue_id"], applied_patch_ids=[patch_id])


def _story(issue: Json, path: str, patch_id: str) -> str:
    return (
        f"# {issue['issue_id']}\n\n"
        f"- Gate: {issue['gate']}\n- Code: {issue['error_code']}\n- Page: {path}\n- Patch: {patch_id}\n\n"
        f"{issue['message']}\n"
    )
