"""W6: put the drafts into the site's worktree as patches, inside the fence, and record how to take them back."""

import difflib

from backends.launch.paths import within
from backends.launch.workers import baseline, patches
from backends.launch.workers.context import Bench
from gateway.contract import Json
from gateway.errors import Fault, Kind


def run(bench: Bench) -> None:
    pages = bench.read("page_plan.json")["pages"]
    _refuse_outside(bench, [page["output_path"] for page in pages])
    earlier: list[Json] = bench.read("patch_bundle.json")["patches"] if bench.has("patch_bundle.json") else []
    baseline.restore(bench, sorted({page["output_path"] for page in pages} | {patch["path"] for patch in earlier}))
    bundle: list[Json] = []
    for number, page in enumerate(pages, 1):
        draft = bench.folder.joinpath("drafts", page["section"], page["output_path"]).read_bytes()
        before = baseline.base_file(bench, page["output_path"])
        bundle.append(patches.change(patches.numbered(number), page["output_path"], before, draft))
    _within_budget(bench, bundle)
    _apply(bench, bundle)
    bench.write("patch_bundle.json", {"schema_version": "1.0", "patches": bundle})
    bench.write("rollback_metadata.json", rollback(bench, sorted(patch["path"] for patch in bundle)))
    bench.leave("reports/diff_report.md", diff_report(bench, bundle).encode(), "diff_report.md")


def _refuse_outside(bench: Bench, paths: list[str]) -> None:
    outside = [path for path in paths if not within(path, bench.config["allowed_paths"])]
    if outside:
        raise Fault(
            Kind.DENIED,
            "The plan has pages outside the allowed paths.",
            code="ALLOWED_PATHS_VIOLATION",
            details={"paths": outside, "allowed_paths": bench.config["allowed_paths"]},
        )


def _within_budget(bench: Bench, bundle: list[Json]) -> None:
    budgets = bench.config["budgets"]
    longest = max((len(patch.get("content", "").splitlines()) for patch in bundle), default=0)
    for used, name in (
        (len(bundle), "max_files_changed"),
        (len(bundle), "max_file_writes"),
        (longest, "max_lines_per_file"),
    ):
        if used > budgets[name]:
            code = f"BUDGET_EXCEEDED_{name.removeprefix('max_').upper()}"
            details = {"budget": name, "limit": budgets[name], "needed": used}
            raise Fault(Kind.TOO_LARGE, "The launch needs more than its budget.", code=code, details=details)


def _apply(bench: Bench, bundle: list[Json]) -> None:
    conflicts: list[Json] = []
    for patch in bundle:
        outcome = patches.apply(patch, bench.site, bench.config["allowed_paths"])
        if outcome == "already_applied":
            bench.say("PATCH_ALREADY_APPLIED", patch_id=patch["patch_id"])
        elif outcome != "applied":
            conflicts.append({"patch_id": patch["patch_id"], "path": patch["path"], "reason": outcome})
    if conflicts:
        bench.write("patch_conflicts.json", {"schema_version": "1.0", "conflicts": conflicts})
        raise Fault(
            Kind.ILLEGAL_STATE,
            "The site refused some of the changes.",
            code="LINKER_PATCHER_CONFLICT_UNRESOLVABLE",
            details={"conflicts": conflicts},
        )


def rollback(bench: Bench, paths: list[str]) -> Json:
    sha = baseline.base_sha(bench)
    steps = ["Close the pull request, or revert its merge commit.", f"git checkout {sha} -- <each affected path>"]
    return {
        "schema_version": "1.0",
        "run_id": bench.run_id,
        "base_ref": sha,
        "rollback_steps": steps,
        "affected_paths": paths,
    }


def diff_report(bench: Bench, bundle: list[Json]) -> str:
    parts = ["# Changes to the site\n"]
    for path in sorted({patch["path"] for patch in bundle}):
        before = (baseline.base_file(bench, path) or b"").decode("utf-8", "replace").splitlines()
        target = bench.site / path
        after = (target.read_bytes() if target.is_file() else b"").decode("utf-8", "replace").splitlines()
        diff = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
        parts.append(f"## {path}\n\n````diff\n" + "\n".join(diff) + "\n````\n")
    return "\n".join(parts)
