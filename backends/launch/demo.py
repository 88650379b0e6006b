"""The demo: launches a small product up to the pull request, and breaks one page to show validation and fix."""

import asyncio
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import build_run_config
from backends.launch.workers.scout import HEAD
from gateway.contract import Json
from gateway.errors import Fault, Kind

TITLE: Final = "Launch: a small product's repository becomes documentation pages and a pull request."

_PAUSE: Final = 0.2
_PAGE: Final = "work/site/content/docs.aspose.org/3d/en/python/features.md"
_UNPROVEN: Final = "- It is the fastest."
_STATE_NOTES: Final = {
    "CLONED_INPUTS": "product and site cloned; none of their code is run",
    "INGESTED": "documents and examples listed",
    "FACTS_READY": "claims extracted, each with its source lines",
    "PLAN_READY": "pages planned",
    "DRAFT_READY": "pages written from claims and snippets",
    "LINKING": "pages added to the site's worktree",
    "VALIDATING": "all gates run, including the Hugo build",
    "READY_FOR_PR": "all gates passed",
}


async def prepare(folder: Path) -> Json:
    if shutil.which("git") is None:
        raise Fault(Kind.UNSUPPORTED, "this demo requires git; install it and try again")
    await asyncio.to_thread(sample.create_repositories, folder / "repositories")
    return {"launch": {"module": "backends.launch", "options": options(folder)}}


def options(folder: Path) -> Json:
    """Return the backend options for the repositories that `prepare` created below the folder."""
    repositories = folder / "repositories"
    return {
        "local_roots": [str(repositories)],
        "site_repo_url": str(repositories / "site"),
        "github_api": None,
        "github_clone_base": repositories.as_uri(),
    }


async def play(demo: Demo) -> Json:
    config = build_run_config(
        Options.model_validate(options(demo.folder)), "3d", "python", "en", sample.PRODUCT_URL, HEAD
    )
    started = await demo.call("launch_start_run", {"run_config": config})
    run = _Launch(demo, started["run_id"], [started["state"]])
    demo.step("launch_start_run", run.run_id)
    demo.note(started["state"])
    await run.watch()
    gate, fixed_ids = await run.break_and_fix(demo.files / "launch" / "runs" / run.run_id / _PAGE)
    demo.step("launch_open_pr")
    pull_request = await run.call("launch_open_pr")
    changed = await asyncio.to_thread(_changed_paths, demo.folder / "repositories" / "site", pull_request["branch"])
    demo.note(f"{len(changed)} pages committed", f"{pull_request['commit_sha'][:12]} on {pull_request['branch']}")
    demo.note("pull request recorded", pull_request["pr_url"])
    await run.show_states()
    return {
        "run_id": run.run_id,
        "states": run.states,
        "failed_gate": gate,
        "fixed_issues": fixed_ids,
        "changed_paths": changed,
        "allowed_paths": config["allowed_paths"],
        "pull_request": {name: pull_request[name] for name in ("pr_url", "branch", "commit_sha")},
    }


@dataclass(frozen=True, slots=True)
class _Launch:
    """One run of the demo."""

    demo: Demo
    run_id: str
    states: list[str]
    """The states of the run that were printed so far, in order."""

    async def call(self, tool: str) -> Json:
        return await self.demo.call(tool, {"run_id": self.run_id})

    async def show_states(self) -> None:
        events: list[Json] = (await self.call("launch_get_run_telemetry"))["events"]
        moves = [event["payload"]["new_state"] for event in events if event["type"] == "RUN_STATE_CHANGED"]
        for state in moves[len(self.states) - 1 :]:
            self.demo.note(state, _STATE_NOTES.get(state, ""))
            self.states.append(state)

    async def watch(self) -> None:
        """Print the run's states until it is ready for the pull request. Raises `Fault` if it fails."""
        while self.states[-1] not in ("READY_FOR_PR", "FAILED"):
            await asyncio.sleep(_PAUSE)
            await self.show_states()
        if self.states[-1] == "FAILED":
            raise Fault(Kind.INTERNAL, f"the run {self.run_id} failed; use --folder to keep its reports")

    async def break_and_fix(self, page: Path) -> tuple[str, list[str]]:
        """Add an uncited statement to the page, validate and fix it. Returns the failed gate and fixed issue ids."""
        self.demo.step("break a page manually", f'"{_UNPROVEN}" in {page.name}')
        text = await asyncio.to_thread(page.read_text)
        await asyncio.to_thread(page.write_text, text.replace("\n## See also", f"{_UNPROVEN}\n\n## See also"))
        self.demo.step("launch_validate")
        report = (await self.call("launch_validate"))["validation_report"]
        failed: str = next(gate["name"] for gate in report["gates"] if not gate["ok"])
        for issue in report["issues"]:
            if issue["gate"] == failed:
                self.demo.note(f"{failed} fails", issue["message"])
        await self.show_states()
        fixed_ids: list[str] = []
        while not report["ok"]:
            self.demo.step("launch_fix_next")
            fixed = await self.call("launch_fix_next")
            report = fixed["validation_report"]
            fixed_ids.append(fixed["fixed_issue_id"])
            self.demo.note(f"fixed {fixed['fixed_issue_id']}", f"{fixed['remaining_blockers']} blockers remain")
            await self.show_states()
        return failed, fixed_ids


def _changed_paths(site: Path, branch: str) -> list[str]:
    completed = subprocess.run(  # noqa: S603
        ["git", "diff", "--name-only", "main", branch],  # noqa: S607
        cwd=site,
        capture_output=True,
        check=True,
        text=True,
    )
    return completed.stdout.split()
