"""Studios with the real plugin that hang, die, or belong to another tenant."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

MODULE = "return {loop = function() while true do end end}"


async def test_an_endless_loop_is_a_timeout_and_the_studio_comes_back(opening: Any) -> None:
    async with opening(execute_timeout=1) as desk:
        await desk.luau(patience=3)
        await desk.module(MODULE)
        before = (await desk.studios())[0]["studioId"]
        refusal = await desk.refusal("script_execute", {"scriptPath": "ServerScriptService.M", "functionName": "loop"})
        assert (refusal["code"], refusal["kind"], refusal["retryable"]) == ("INTERNAL_ERROR", "timeout", True)
        async with asyncio.timeout(30):  # it is killed, started anew, and connects by itself
            while [studio["studioId"] for studio in await desk.studios() if studio["connected"]] in ([], [before]):
                await asyncio.sleep(0.05)
        assert (await desk.output("bridge_ping"))["ok"] is True


async def test_killing_the_studio_in_mid_call_is_unavailable_and_the_call_after_its_return_works(desk: Any) -> None:
    process = await desk.luau()
    await desk.module("task.wait(60) return 1")
    asking = asyncio.create_task(desk.refusal("script_execute", {"scriptPath": "ServerScriptService.M"}))
    async with asyncio.timeout(20):
        while not (await _running(desk) and (await desk.studios())[0]["polling"]):
            await asyncio.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    refusal = await asking
    assert (refusal["code"], refusal["kind"], refusal["category"]) == ("INTERNAL_ERROR", "unavailable", "platform")
    await desk.luau()
    assert (await desk.output("bridge_ping"))["ok"] is True


async def _running(desk: Any) -> bool:
    """Whether the Studio has the script under way: it answers others meanwhile, after it took that one."""
    if '"status": "running"' not in await desk.read("gox://runs"):
        return False
    return (await desk.output("bridge_ping"))["ok"]


async def test_two_studios_of_two_tenants_never_see_each_others_instances(desk: Any) -> None:
    await desk.luau("red")
    await desk.luau("blue", tenant="other", subject="bob")
    blue = desk.as_(await desk.gateway.new_key("other", "bob"))
    await desk.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "Red"})
    find = {"rootPath": "game", "className": "Part"}
    assert (await blue.output("instance_find", find))["matches"] == []
    assert [each["name"] for each in (await desk.output("instance_find", find))["matches"]] == ["Red"]
    red = (await desk.studios())[0]["studioId"]
    assert red not in [each["studioId"] for each in await blue.studios()]
    assert (await blue.refusal("bridge_ping", {"studioId": red}))["code"] == "NOT_FOUND"


async def test_a_headless_studio_does_not_outlive_whoever_started_it(tmp_path: Path, modules: Path) -> None:
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
from backends.roblox.headless_studio import headless

async def main():
    async with headless("http://127.0.0.1:9", "token", "orphan", Path(sys.argv[1])) as process:
        print(process.pid, flush=True)
        await process.wait()

asyncio.run(main())
"""


def _alive(pid: int) -> bool:
    """Whether it runs; one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
