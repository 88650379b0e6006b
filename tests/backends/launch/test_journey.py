"""The whole way: from a repository to a pull request, through the gateway."""

from typing import Any


async def test_a_run_goes_from_nothing_to_a_pull_request(launch: Any) -> None:
    async with launch() as launching:
        run_id = await launching.ready()
        pull = await launching.call("open_pr", run_id=run_id)
        assert pull["ok"], pull
        assert (await launching.call("get_status", run_id=run_id))["status"]["state"] == "DONE"
