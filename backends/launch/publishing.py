"""Opening the pull request: prepare, commit, ask for it, record it, and be done."""

import asyncio
from pathlib import Path

from backends.launch.commit.client import CommitClient
from backends.launch.events import News
from backends.launch.job import Job
from backends.launch.options import Options
from backends.launch.outbound import Outward
from backends.launch.pipeline import PUBLISH
from backends.launch.states import State
from backends.launch.workers.publish import pull_record
from gateway.contract import Host, Json


class Publishing:
    def __init__(self, home: Host, outward: Outward) -> None:
        self._options: Options = home.options
        self._outward = outward

    async def open_pr(self, job: Job, folder: Path) -> Json:
        """A crash anywhere in between leaves a run whose next call ends with the same commit and pull request."""
        run = job.run
        prepared = await job.do(PUBLISH, "prepare", {"judged": await asyncio.to_thread(_judged, job)})
        await job.progress("prepared")
        commit, pull = await self._served(job, prepared, folder / "commit-service")
        pr = pull_record(run.run_id, prepared, commit, pull)
        await job.do(PUBLISH, "record", {"pr": pr})
        opened = {name: pr[name] for name in ("pr_url", "branch", "commit_sha")}
        await job.move(State.PR_OPENED, [News("PR_OPENED", opened, job.span)])
        await job.progress(State.PR_OPENED)
        await job.move(State.DONE)
        return opened

    async def _served(self, job: Job, prepared: Json, service: Path) -> tuple[Json, Json]:
        if self._options.commit_service == "embedded":
            given = {"service": str(service)}
            commit = await job.do(PUBLISH, "commit", {**given, "request": prepared["commit"]})
            await job.progress("committed")
            return commit, await job.do(PUBLISH, "open_pr", {**given, "request": prepared["open_pr"]})
        about = (await asyncio.to_thread(lambda: job.run.config))["commit_service"]
        client = CommitClient(self._outward, about["endpoint_url"], about["github_token_env"])
        commit = await client.commit(prepared["commit"])
        await job.progress("committed")
        return commit, await client.open_pr(prepared["open_pr"])


def _judged(job: Job) -> str:
    """The digest of the worktree that the last validation looked at."""
    judged = [event["payload"]["worktree_sha256"] for event in job.run.events() if event["type"] == "WORKTREE_JUDGED"]
    return judged[-1] if judged else ""
