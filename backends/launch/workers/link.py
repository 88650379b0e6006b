"""W6: applies the drafts to the site's worktree as patches within the allowed paths, and records rollback metadata."""

import difflib

from backends.launch.paths import is_within
from backends.launch.workers import baseline, patches
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json
from gateway.errors import Fault, Kind


def run(context: WorkerContext) -> None:
    pages = context.read("page_plan.json")["pages"]
    _check_allowed_paths(context, [page["output_path"] for page in pages])
    earlier: list[Json] = context.read("patch_bundle.json")["patches"] if context.has("patch_bundle.json") else []
    baseline.restore(context, sorted({page["output_path"] for page in pages} | {patch["path"] for patch in earlier}))
    bundle: list[Json] = []
    for number, page in enumerate(pages, 1):
        draft = context.folder.joinpath("drafts", page["section"], page["output_path"]).read_bytes()
        before = baseline.base_file(context, page["output_path"])
        bundle.append(patches.build_patch(patches.format_patch_id(number), page["output_path"], before, draft))
    _check_budget(context, bundle)
    _apply(context, bundle)
    context.write("patch_bundle.json", {"schema_version": "1.0", "patches": bundle})
    context.write("rollback_metadata.json", rollback_metadata(context, sorted(patch["path"] for patch in bundle)))
    context.write_file("reports/diff_report.md", diff_report(context, bundle).encode(), "diff_report.md")


def _check_allowed_paths(context: WorkerContext, paths: list[str]) -> None:
    outside = [path for path in paths if not is_within(path, context.config["allowed_paths"])]
    if outside:
        raise Fault(
            Kind.DENIED,
            "The plan has pages outside the allowed paths.",
            code="ALLOWED_PATHS_VIOLATION",
            details={"paths": outside, "allowed_paths": context.config["allowed_paths"]},
        )


def _check_budget(context: WorkerContext, bundle: list[Json]) -> None:
    budgets = context.config["budgets"]
    longest = max((len(patch.get("content", "").splitlines()) for patch in bundle), default=0)
    for used, name in (
        (len(bundle), "max_files_changed"),
        (len(bundle), "max_file_writes"),
        (longest, "max_lines_per_file"),
    ):
        if used > budgets[name]:
            code = f"BUDGET_EXCEEDED_{name.removeprefix('max_').upper()}"
            details = {"budget": name, "limit": budgets[name], "needed": used}
            raise Fault(Kind.TOO_LARGE, "The launch exceeds its budget.", code=code, details=details)


def _apply(context: WorkerContext, bundle: list[Json]) -> None:
    conflicts: list[Json] = []
    for patch in bundle:
        outcome = patches.apply(patch, context.site, context.config["allowed_paths"])
        if outcome == "already_applied":
            context.emit("PATCH_ALREADY_APPLIED", patch_id=patch["patch_id"])
        elif outcome != "applied":
            conflicts.append({"patch_id": patch["patch_id"], "path": patch["path"], "reason": outcome})
    if conflicts:
        context.write("patch_conflicts.json", {"schema_version": "1.0", "conflicts": conflicts})
        raise Fault(
            Kind.ILLEGAL_STATE,
            "Some patches conflict with the site.",
            code="LINKER_PATCHER_CONFLICT_UNRESOLVABLE",
            details={"conflicts": conflicts},
        )


def rollback_metadata(context: WorkerContext, paths: list[str]) -> Json:
    sha = baseline.base_sha(context)
    steps = ["Close the pull request, or revert its merge commit.", f"git checkout {sha} -- <each affected path>"]
    return {
        "schema_version": "1.0",
        "run_id": context.run_id,
        "base_ref": sha,
        "rollback_steps": steps,
        "affected_paths": paths,
    }


def diff_report(context: WorkerContext, bundle: list[Json]) -> str:
    parts = ["# Changes to the site\n"]
    for path in sorted({patch["path"] for patch in bundle}):
        before = (baseline.base_file(context, path) or b"").decode("utf-8", "replace").splitlines()
        target = context.site / path
        after = (target.read_bytes() if target.is_file() else b"").decode("utf-8", "replace").splitlines()
        diff = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
        parts.append(f"## {path}\n\n````diff\n" + "\n".join(diff) + "\n````\n")
    return "\n".join(parts)
