"""The demo: a small product goes from nothing to a pull request; one page is broken on the way to show the mending."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.derived import run_config
from backends.launch.workers.scout import HEAD
from gateway.contract import Json

Call = Callable[[str, Json], Awaitable[Json]]
"""(tool, arguments) -> its structured content."""
Show = Callable[[str], None]

_PAUSE: Final = 0.1
_PAGE: Final = "work/site/content/docs.aspose.org/3d/en/python/features.md"


def options(folder: Path) -> Json:
    """What the backend's entry needs for the repositories that `prepare` makes in that folder."""
    return {
        "local_roots": [str(folder)],
        "site_repo_url": str(folder / "site"),
        "github_api": None,
        "github_clone_base": folder.as_uri(),
    }


def prepare(folder: Path) -> Json:
    """Make the sample's repositories; the run_config for a launch of them."""
    sample.make(folder)
    return run_config(Options.model_validate(options(folder)), "3d", "python", "en", sample.PRODUCT_URL, HEAD)


async def journey(call: Call, config: Json, runs: Path | None, show: Show) -> Json:
    """From the start to the pull request; the last answer. With the folder of the runs a page is broken on the way."""
    started = await call("launch_start_run", {"run_config": config})
    run_id = started["run_id"]
    show(f"{run_id} started")
    await _rest(call, run_id, show)
    if runs is not None:
        await _break_and_mend(call, run_id, runs / run_id / _PAGE, show)
    pull = await call("launch_open_pr", {"run_id": run_id})
    show(f"branch {pull['branch']}, commit {pull['commit_sha'][:12]}, pull request {pull['pr_url']}")
    status = await call("launch_get_status", {"run_id": run_id})
    show(status["status"]["state"])
    return pull


async def _rest(call: Call, run_id: str, show: Show) -> None:
    """Wait until the run stops by itself, showing each state once."""
    shown = ""
    while True:
        state = (await call("launch_get_status", {"run_id": run_id}))["status"]["state"]
        if state != shown:
            show(state)
            shown = state
        if state in ("READY_FOR_PR", "FAILED"):
            return
        await asyncio.sleep(_PAUSE)


async def _break_and_mend(call: Call, run_id: str, page: Path, show: Show) -> None:
    text = await asyncio.to_thread(page.read_text)
    await asyncio.to_thread(page.write_text, text.replace("\n## See also", "- It is the fastest.\n\n## See also"))
    report = (await call("launch_validate", {"run_id": run_id}))["validation_report"]
    for issue in report["issues"]:
        show(f"{issue['gate']}: {issue['message']}")
    while not report["ok"]:
        fixed = await call("launch_fix_next", {"run_id": run_id})
        report = fixed["validation_report"]
        show(f"mended {fixed['fixed_issue_id']} by {', '.join(fixed['applied_patch_ids'])}")
