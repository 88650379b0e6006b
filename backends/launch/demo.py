"""The demo: a small product goes from nothing to a pull request; one page is broken on the way to show the mending."""

import asyncio
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import run_config
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
    if shutil.which("git") is None:
        raise Fault(Kind.UNSUPPORTED, "this demo needs git: install it, and try again")
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
    run = _Launch(demo, started["run_id"], [started["state"]])
    demo.step("launch_start_run", run.run_id)
    demo.note(started["state"])
    await run.watch()
    gate, mended = await run.break_and_mend(demo.files / "launch" / "runs" / run.run_id / _PAGE)
    demo.step("launch_open_pr")
    pull = await run.call("launch_open_pr")
    changed = await asyncio.to_thread(_changed, demo.folder / "repositories" / "site", pull["branch"])
    demo.note(f"{len(changed)} pages committed", f"{pull['commit_sha'][:12]} on {pull['branch']}")
    demo.note("pull request recorded", pull["pr_url"])
    await run.show_states()
    return {
        "run_id": run.run_id,
        "states": run.states,
        "failed_gate": gate,
        "fixed_issues": mended,
        "changed_paths": changed,
        "allowed_paths": config["allowed_paths"],
        "pull_request": {name: pull[name] for name in ("pr_url", "branch", "commit_sha")},
    }


@dataclass(frozen=True, slots=True)
class _Launch:
    demo: Demo
    run_id: str
    states: list[str]
    """Every state that it came to so far, as its events tell of them, and as they were shown."""

    async def call(self, tool: str) -> Json:
        return await self.demo.call(tool, {"run_id": self.run_id})

    async def show_states(self) -> None:
        events: list[Json] = (await self.call("launch_get_run_telemetry"))["events"]
        moves = [event["payload"]["new_state"] for event in events if event["type"] == "RUN_STATE_CHANGED"]
        for state in moves[len(self.states) - 1 :]:
            self.demo.note(state, _REACHED.get(state, ""))
            self.states.append(state)

    async def watch(self) -> None:
        """Until the run stops by itself."""
        while self.states[-1] not in ("READY_FOR_PR", "FAILED"):
            await asyncio.sleep(_PAUSE)
            await self.show_states()
        if self.states[-1] == "FAILED":
            raise Fault(Kind.INTERNAL, f"the run {self.run_id} failed; --folder keeps its reports")

    async def break_and_mend(self, page: Path) -> tuple[str, list[str]]:
        """The gate that saw a statement without a proof, and the issues that were mended."""
        self.demo.step("a page is broken by hand", f'"{_UNPROVEN}" in {page.name}')
        text = await asyncio.to_thread(page.read_text)
        await asyncio.to_thread(page.write_text, text.replace("\n## See also", f"{_UNPROVEN}\n\n## See also"))
        self.demo.step("launch_validate")
        report = (await self.call("launch_validate"))["validation_report"]
        failed: str = next(gate["name"] for gate in report["gates"] if not gate["ok"])
        for issue in report["issues"]:
            if issue["gate"] == failed:
                self.demo.note(f"{failed} fails", issue["message"])
        await self.show_states()
        mended: list[str] = []
        while not report["ok"]:
            self.demo.step("launch_fix_next")
            fixed = await self.call("launch_fix_next")
            report = fixed["validation_report"]
            mended.append(fixed["fixed_issue_id"])
            self.demo.note(f"mended {fixed['fixed_issue_id']}", f"{fixed['remaining_blockers']} left")
            await self.show_states()
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
