"""The demo: a small product goes from nothing to a pull request; one page is broken on the way to show the mending."""

import asyncio
import subprocess
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.derived import run_config
from backends.launch.workers.scout import HEAD
from gateway.contract import Json
from gateway.errors import Fault, Kind

TITLE: Final = "Launch: a small product's repository becomes documentation pages and a pull request."

_PAUSE: Final = 0.2
_PAGE: Final = "work/site/content/docs.aspose.org/3d/en/python/features.md"
_UNPROVEN: Final = "- It is the fastest."
_REACHED: Final = {
    "CLONED_INPUTS": "product and site read from git, nothing of them run",
    "INGESTED": "documents and examples listed",
    "FACTS_READY": "statements with the lines that prove them",
    "PLAN_READY": "which pages there will be",
    "DRAFT_READY": "pages written from facts and real snippets",
    "LINKING": "pages put into the site's worktree",
    "VALIDATING": "ten gates, the Hugo build among them",
    "READY_FOR_PR": "every gate is ok",
}


async def prepare(folder: Path) -> Json:
    await asyncio.to_thread(sample.make, folder / "repositories")
    return {"launch": {"module": "backends.launch", "options": options(folder)}}


def options(folder: Path) -> Json:
    """What lets the backend use the repositories that `prepare` made below the folder."""
    repositories = folder / "repositories"
    return {
        "local_roots": [str(repositories)],
        "site_repo_url": str(repositories / "site"),
        "github_api": None,
        "github_clone_base": repositories.as_uri(),
    }


async def play(demo: Demo) -> Json:
    config = run_config(Options.model_validate(options(demo.folder)), "3d", "python", "en", sample.PRODUCT_URL, HEAD)
    started = await demo.call("launch_start_run", {"run_config": config})
    run_id: str = started["run_id"]
    demo.step("launch_start_run", run_id)
    demo.note(started["state"])
    states = await _watch(demo, run_id)
    run = demo.files / "launch" / "runs" / run_id
    gate, mended = await _break_and_mend(demo, run_id, run / _PAGE)
    demo.step("launch_open_pr")
    pull = await demo.call("launch_open_pr", {"run_id": run_id})
    site = demo.folder / "repositories" / "site"
    changed = await asyncio.to_thread(_changed, site, pull["branch"])
    demo.note(f"{len(changed)} pages committed", f"{pull['commit_sha'][:12]} on {pull['branch']}")
    demo.note("pull request recorded", pull["pr_url"])
    status = (await demo.call("launch_get_status", {"run_id": run_id}))["status"]
    demo.step("launch_get_status", status["state"])
    return {
        "run_id": run_id,
        "states": [started["state"], *states, status["state"]],
        "failed_gate": gate,
        "fixed_issues": mended,
        "changed_paths": changed,
        "allowed_paths": config["allowed_paths"],
        "pull_request": {name: pull[name] for name in ("pr_url", "branch", "commit_sha")},
        "state": status["state"],
    }


async def _watch(demo: Demo, run_id: str) -> list[str]:
    """Until the run stops by itself; every state that it came to, shown as its events tell of them."""
    states: list[str] = []
    while not states or states[-1] not in ("READY_FOR_PR", "FAILED"):
        if states:
            await asyncio.sleep(_PAUSE)
        events = (await demo.call("launch_get_run_telemetry", {"run_id": run_id}))["events"]
        moves = [event["payload"]["new_state"] for event in events if event["type"] == "RUN_STATE_CHANGED"]
        for state in moves[len(states) :]:
            demo.note(state, _REACHED.get(state, ""))
        states = moves
    if states[-1] == "FAILED":
        raise Fault(Kind.INTERNAL, f"the run {run_id} failed; --folder keeps its reports")
    return states


async def _break_and_mend(demo: Demo, run_id: str, page: Path) -> tuple[str, list[str]]:
    """The gate that saw a statement without a proof, and the issues that were mended."""
    demo.step("a page is broken by hand", f'"{_UNPROVEN}" in {page.name}')
    text = await asyncio.to_thread(page.read_text)
    await asyncio.to_thread(page.write_text, text.replace("\n## See also", f"{_UNPROVEN}\n\n## See also"))
    demo.step("launch_validate")
    report = (await demo.call("launch_validate", {"run_id": run_id}))["validation_report"]
    failed: str = next(gate["name"] for gate in report["gates"] if not gate["ok"])
    for issue in report["issues"]:
        if issue["gate"] == failed:
            demo.note(f"{failed} fails", issue["message"])
    mended: list[str] = []
    while not report["ok"]:
        demo.step("launch_fix_next")
        fixed = await demo.call("launch_fix_next", {"run_id": run_id})
        report = fixed["validation_report"]
        mended.append(fixed["fixed_issue_id"])
        demo.note(f"mended {fixed['fixed_issue_id']}", f"{fixed['remaining_blockers']} left")
    return failed, mended


def _changed(site: Path, branch: str) -> list[str]:
    done = subprocess.run(  # noqa: S603
        ["git", "diff", "--name-only", "main", branch],  # noqa: S607
        cwd=site,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.split()
