"""Child processes cannot harm the gateway or each other: limits, restarts, logs and shutdown."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.flows.process import serving, until, write_settings

SERVER = str(Path(__file__).parent / "fixtures" / "misbehaving_stdio.py")


def misbehaving(behaviour: str = "", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", SERVER, behaviour], **more}


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("behaviour", ["silent", "abrupt"])
async def test_server_that_ignores_or_exits_on_unknown_methods_is_served_within_seconds(
    start: Any, behaviour: str
) -> None:
    began = time.monotonic()
    async with start(backends={"odd": misbehaving(behaviour)}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        assert int(text(await gateway.call("odd_pid")))
        assert time.monotonic() - began < 8


async def test_threat_31_memory_and_open_files_of_a_process_are_limited(start: Any) -> None:
    limits = {"memory_mb": 64, "files": 32}
    async with start(backends={"odd": misbehaving(limits=limits), "free": misbehaving()}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        await gateway.wait_for_tool("free_pid")
        assert text(await gateway.call("free_grow", {"mb": 100})) == str(100 * 1024 * 1024)
        assert text(await gateway.call("free_open", {"count": 100})) == "100"
        assert (await gateway.call("odd_grow", {"mb": 100}))["error"]["message"] == "MemoryError"
        assert text(await gateway.call("odd_grow", {"mb": 20})) == str(20 * 1024 * 1024)
        assert (await gateway.call("odd_open", {"count": 100}))["error"]["message"] == "OSError"


async def test_threat_31_process_that_exceeds_its_cpu_limit_is_killed_and_replaced(start: Any) -> None:
    async with start(backends={"odd": misbehaving(limits={"cpu_seconds": 1})}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        before = text(await gateway.call("odd_pid"))
        assert (await gateway.call("odd_spin"))["result"]["structuredContent"]["error"]["kind"] == "unavailable"
        assert text(await gateway.call("odd_pid")) != before


async def test_threat_31_arguments_are_passed_unchanged_without_a_shell(start: Any, tmp_path: Path) -> None:
    hostile = ["; touch owned", "$(touch owned)", "`touch owned`", "a\nb", "--flag", "|touch owned"]
    entry = {"command": sys.executable, "args": ["-I", "-S", SERVER, "", *hostile], "cwd": str(tmp_path)}
    async with start(backends={"odd": entry}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        pid = text(await gateway.call("odd_pid"))
        seen = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        assert seen[-len(hostile) - 1 : -1] == hostile
        assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
        assert not (tmp_path / "owned").exists()


async def test_stderr_of_a_process_is_logged_with_its_namespace_and_process_id(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gatehouse.upstream")
    async with start(backends={"odd": misbehaving()}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        pid = text(await gateway.call("odd_say", {"text": "disk is full"}))
        async with asyncio.timeout(5):
            while f"odd[{pid}] disk is full" not in caplog.messages:
                await asyncio.sleep(0.01)
        # A very long line is truncated and does not block the server.
        await gateway.call("odd_say", {"text": "x" * 500_000})
        assert text(await gateway.call("odd_pid")) == pid


async def test_program_that_exits_at_once_is_not_restarted_in_a_loop(start: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f'echo started >> "{starts}"; exit 1'
    async with start(backends={"odd": {"command": "sh", "args": ["-c", script]}}) as gateway:
        backend = gateway.app._backends.get("odd")
        for _ in range(20):
            with pytest.raises(Exception, match="odd"):
                await backend.fetch_lists(None)
        assert len(starts.read_text().splitlines()) <= 6
        health = backend.health()
        assert (health.state, health.last_error) == ("failing", "unavailable")


async def test_process_that_ignores_sigterm_and_its_children_end_with_the_gateway(start: Any) -> None:
    async with start(backends={"odd": misbehaving("stubborn")}) as gateway:
        await gateway.wait_for_tool("odd_family")
        family = [int(pid) for pid in text(await gateway.call("odd_family")).split()]
        assert all(map(is_alive, family))
    assert not any(map(is_alive, family))


async def test_children_of_a_process_end_with_it(start: Any) -> None:
    async with start(backends={"odd": misbehaving()}) as gateway:
        await gateway.wait_for_tool("odd_family")
        parent, child = map(int, text(await gateway.call("odd_family")).split())
        os.kill(parent, signal.SIGKILL)
        async with asyncio.timeout(5):
            while is_alive(child):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_process_outlives_a_killed_gateway(tmp_path: Path, number: signal.Signals) -> None:
    write_settings(tmp_path, backends={"odd": misbehaving("stubborn")})
    with serving(tmp_path) as gateway:
        until(lambda: "odd_family" in gateway.tool_names(), "its tools")
        family = [int(pid) for pid in text(gateway.call("odd_family")).split()]
        children = {
            int(pid)
            for pid in Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text().split()
        }
        assert set(family) & children
        gateway.process.send_signal(number)
        assert gateway.process.wait(15) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        until(lambda: not any(map(is_alive, {*family, *children})), "all processes have ended")


async def test_process_limit_evicts_idle_processes_and_never_busy_ones(start: Any) -> None:
    entry = misbehaving(isolation="user", max_processes=3)
    async with start(backends={"odd": entry}) as gateway:
        await gateway.wait_for_tool("odd_pid")
        users = [gateway.as_(await gateway.new_key(subject=f"user{number}")) for number in range(4)]
        pids = [int(text(await user.call("odd_pid"))) for user in users]
        assert len(set(pids)) == 4
        async with asyncio.timeout(10):
            while sum(map(is_alive, pids)) > 2:  # plus the process that serves the lists
                await asyncio.sleep(0.01)
        backend = gateway.app._backends.get("odd")
        held = [asyncio.create_task(user.call("odd_hold")) for user in users[:2]]
        while backend.health().in_flight < 2:
            await asyncio.sleep(0.01)
        refused = (await users[2].call("odd_pid"))["result"]["structuredContent"]["error"]
        assert (refused["kind"], refused["retryable"]) == ("unavailable", True)
        for task in held:
            task.cancel()
