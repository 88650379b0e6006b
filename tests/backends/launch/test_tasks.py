"""Slow tools of launch as tasks, by a raw client of 2026-07-28 and by the Python SDK's task client of 2025-11-25."""

from typing import Any

from tests.flows.task_client import call_modern, wait_modern
from tests.peers.task_peers import run_client


async def test_validation_of_a_run_is_a_task_in_both_eras(launch: Any) -> None:
    async with launch({"tasks": {"after": 0.01}}) as launcher:
        run_id = await launcher.ready()
        created = (await call_modern(launcher.gateway, "launch_validate", {"run_id": run_id}))["result"]
        assert created["resultType"] == "task"
        task = await wait_modern(launcher.gateway, created["taskId"], seconds=120)
        assert task["result"]["structuredContent"]["ok"] is True
        names = {"long": ["launch_validate", {"run_id": run_id}]}
        seen = await run_client("python", launcher.gateway.url, launcher.gateway.key, names)
        assert seen["support"]["launch_validate"] == "optional"
        assert seen["result"]["structuredContent"]["ok"] is True
