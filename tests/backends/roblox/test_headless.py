"""Headless Studios with the real plugin: hangs, kills, tenant isolation, and process lifetime."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

MODULE = "return {loop = function() while true do end end}"


async def test_endless_loop_times_out_and_the_studio_reconnects(open_harness: Any) -> None:
    async with open_harness(execute_timeout=1) as harness:
        await harness.start_plugin(stall_timeout=3)
        await harness.create_script(MODULE)
        before = (await harness.studios())[0]["studioId"]
        refusal = await harness.error("script_execute", {"scriptPath": "ServerScriptService.M", "functionName": "loop"})
        assert (refusal["code"], refusal["kind"], refusal["retryable"]) == ("INTERNAL_ERROR", "timeout", True)
        async with asyncio.timeout(30):  # the VM is killed, restarted, and reconnects
            while [studio["studioId"] for studio in await harness.studios() if studio["connected"]] in ([], [before]):
                await asyncio.sleep(0.05)
        assert (await harness.output("bridge_ping"))["ok"] is True


async def test_call_to_a_killed_studio_is_unavailable_and_works_again_after_reconnect(harness: Any) -> None:
    process = await harness.start_plugin()
    await harness.create_script("task.wait(60) return 1")
    asking = asyncio.create_task(harness.error("script_execute", {"scriptPath": "ServerScriptService.M"}))
    async with asyncio.timeout(20):
        while not (await _running(harness) and (await harness.studios())[0]["polling"]):
            await asyncio.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    refusal = await asking
    assert (refusal["code"], refusal["kind"], refusal["category"]) == ("INTERNAL_ERROR", "unavailable", "platform")
    await harness.start_plugin()
    assert (await harness.output("bridge_ping"))["ok"] is True


async def _running(harness: Any) -> bool:
    """Return whether the Studio is running the script; it still answers other requests."""
    if '"status": "running"' not in await harness.read("gox://runs"):
        return False
    return (await harness.output("bridge_ping"))["ok"]


async def test_studios_of_two_tenants_are_isolated(harness: Any) -> None:
    await harness.start_plugin("red")
    await harness.start_plugin("blue", tenant="other", subject="bob")
    blue = harness.as_(await harness.gateway.new_key("other", "bob"))
    await harness.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "Red"})
    find = {"rootPath": "game", "className": "Part"}
    assert (await blue.output("instance_find", find))["matches"] == []
    assert [each["name"] for each in (await harness.output("instance_find", find))["matches"]] == ["Red"]
    red = (await harness.studios())[0]["studioId"]
    assert red not in [each["studioId"] for each in await blue.studios()]
    assert (await blue.error("bridge_ping", {"studioId": red}))["code"] == "NOT_FOUND"


async def test_headless_studio_exits_when_its_parent_is_killed(tmp_path: Path, modules: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(_STARTER)
    starter = await asyncio.create_subprocess_exec(sys.executable, str(script), str(modules), stdout=PIPE)
    assert starter.stdout is not None
    pid = int(await starter.stdout.readline())
    starter.kill()
    await starter.wait()
    async with asyncio.timeout(20):
        while _alive(pid):
            await asyncio.sleep(0.02)


_STARTER = """
import asyncio, sys
from pathlib import Path
from backends.roblox.headless_studio import run_headless_studio

async def main():
    async with run_headless_studio("http://127.0.0.1:9", "token", "orphan", Path(sys.argv[1])) as process:
        print(process.pid, flush=True)
        await process.wait()

asyncio.run(main())
"""


def _alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
