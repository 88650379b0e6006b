"""Opens the pull request of a validated run: prepare, commit, open, record."""

import asyncio
from pathlib import Path

from backends.launch.commit.client import CommitClient
from backends.launch.events import NewEvent
from backends.launch.job import Job
from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.pipeline import PUBLISH
from backends.launch.states import State
from backends.launch.workers.publish import pull_record
from gateway.contract import Host, Json


class Publisher:
    """Publishes a run through the embedded commit service or an external one."""

    def __init__(self, host: Host, outbound: OutboundClients) -> None:
        self._options: Options = host.options
        self._outbound = outbound

    async def open_pr(self, job: Job, folder: Path) -> Json:
        """Commit the pages and open the pull request. After a crash, a repeated call creates no duplicates."""
        run = job.run
        prepared = await job.run_work(
            PUBLISH, "prepare", {"validated_digest": await asyncio.to_thread(_validated_digest, job)}
        )
        await job.progress("prepared")
        commit, pull = await self._commit_and_open(job, prepared, folder / "commit-service")
        pr = pull_record(run.run_id, prepared, commit, pull)
        await job.run_work(PUBLISH, "record", {"pr": pr})
        opened = {name: pr[name] for name in ("pr_url", "branch", "commit_sha")}
        await job.move(State.PR_OPENED, [NewEvent("PR_OPENED", opened, job.span)])
        await job.progress(State.PR_OPENED)
        await job.move(State.DONE)
        return opened

    async def _commit_and_open(self, job: Job, prepared: Json, service: Path) -> tuple[Json, Json]:
        if self._options.commit_service == "embedded":
            parameters = {"service": str(service)}
            commit = await job.run_work(PUBLISH, "commit", {**parameters, "request": prepared["commit"]})
            await job.progress("committed")
            return commit, await job.run_work(PUBLISH, "open_pr", {**parameters, "request": prepared["open_pr"]})
        service_config = (await asyncio.to_thread(lambda: job.run.config))["commit_service"]
        client = CommitClient(self._outbound, service_config["endpoint_url"], service_config["github_token_env"])
        commit = await client.commit(prepared["commit"])
        await job.progress("committed")
        return commit, await client.open_pr(prepared["open_pr"])


def _validated_digest(job: Job) -> str:
    """Return the digest of the worktree at the last validation."""
    digests = [event["payload"]["worktree_sha256"] for event in job.run.events() if event["type"] == "WORKTREE_JUDGED"]
    return digests[-1] if digests else ""
