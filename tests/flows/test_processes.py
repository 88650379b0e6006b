"""What child processes may do to the gateway and to each other: nothing."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.flows.process import serving, until, write_settings

ODD = str(Path(__file__).parent / "fixtures" / "odd_stdio.py")


def odd(manner: str = "", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", ODD, manner], **more}


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("manner", ["silent", "abrupt"])
async def test_a_server_that_is_silent_or_ends_at_what_it_does_not_know_is_served_within_seconds(
    start: Any, manner: str
) -> None:
    began = time.monotonic()
    async with start(backends={"odd": odd(manner)}) as gateway:
        await gateway.listed("odd_pid")
        assert int(text(await gateway.call("odd_pid")))
        assert time.monotonic() - began < 8


async def test_threat_31_memory_and_open_files_of_a_process_end_at_its_limits(start: Any) -> None:
    limits = {"memory_mb": 64, "files": 32}
    async with start(backends={"odd": odd(limits=limits), "free": odd()}) as gateway:
        await gateway.listed("odd_pid")
        await gateway.listed("free_pid")
        assert text(await gateway.call("free_grow", {"mb": 100})) == str(100 * 1024 * 1024)
        assert text(await gateway.call("free_open", {"count": 100})) == "100"
        assert (await gateway.call("odd_grow", {"mb": 100}))["error"]["message"] == "MemoryError"
        assert text(await gateway.call("odd_grow", {"mb": 20})) == str(20 * 1024 * 1024)
        assert (await gateway.call("odd_open", {"count": 100}))["error"]["message"] == "OSError"


async def test_threat_31_a_process_that_spins_is_ended_by_its_processor_time_and_replaced(start: Any) -> None:
    async with start(backends={"odd": odd(limits={"cpu_seconds": 1})}) as gateway:
        await gateway.listed("odd_pid")
        before = text(await gateway.call("odd_pid"))
        assert (await gateway.call("odd_spin"))["result"]["structuredContent"]["error"]["kind"] == "unavailable"
        assert text(await gateway.call("odd_pid")) != before


async def test_threat_31_arguments_reach_a_program_as_they_are_and_no_shell_reads_them(
    start: Any, tmp_path: Path
) -> None:
    hostile = ["; touch owned", "$(touch owned)", "`touch owned`", "a\nb", "--flag", "|touch owned"]
    entry = {"command": sys.executable, "args": ["-I", "-S", ODD, "", *hostile], "cwd": str(tmp_path)}
    async with start(backends={"odd": entry}) as gateway:
        await gateway.listed("odd_pid")
        pid = text(await gateway.call("odd_pid"))
        seen = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        assert seen[-len(hostile) - 1 : -1] == hostile
        assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
        assert not (tmp_path / "owned").exists()


async def test_what_it_complains_of_is_in_the_log_with_its_namespace_and_process_id(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gatehouse.upstream")
    async with start(backends={"odd": odd()}) as gateway:
        await gateway.listed("odd_pid")
        pid = text(await gateway.call("odd_say", {"text": "disk is full"}))
        async with asyncio.timeout(5):
            while f"odd[{pid}] disk is full" not in caplog.messages:
                await asyncio.sleep(0.01)
        # A line without end is shown in part, and the server is not held up by it.
        await gateway.call("odd_say", {"text": "x" * 500_000})
        assert text(await gateway.call("odd_pid")) == pid


async def test_a_program_that_ends_at_once_is_not_started_again_and_again(start: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f'echo started >> "{starts}"; exit 1'
    async with start(backends={"odd": {"command": "sh", "args": ["-c", script]}}) as gateway:
        backend = gateway.house._backends.get("odd")
        for _ in range(20):
            with pytest.raises(Exception, match="odd"):
                await backend.fetch_lists(None)
        assert len(starts.read_text().splitlines()) <= 6
        health = backend.health()
        assert (health.state, health.last_error) == ("failing", "unavailable")


async def test_a_stubborn_process_and_what_it_started_are_gone_when_the_gateway_stops(start: Any) -> None:
    async with start(backends={"odd": odd("stubborn")}) as gateway:
        await gateway.listed("odd_family")
        family = [int(pid) for pid in text(await gateway.call("odd_family")).split()]
        assert all(map(alive, family))
    assert not any(map(alive, family))


async def test_what_a_process_started_does_not_outlive_it(start: Any) -> None:
    async with start(backends={"odd": odd()}) as gateway:
        await gateway.listed("odd_family")
        parent, child = map(int, text(await gateway.call("odd_family")).split())
        os.kill(parent, signal.SIGKILL)
        async with asyncio.timeout(5):
            while alive(child):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_gateway_that_is_killed(tmp_path: Path, sign: signal.Signals) -> None:
    write_settings(tmp_path, backends={"odd": odd("stubborn")})
    with serving(tmp_path) as gateway:
        until(lambda: "odd_family" in gateway.tool_names(), "its tools")
        family = [int(pid) for pid in text(gateway.call("odd_family")).split()]
        beside = {
            int(pid)
            for pid in Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text().split()
        }
        assert set(family) & beside
        gateway.process.send_signal(sign)
        assert gateway.process.wait(15) == (-signal.SIGKILL if sign == signal.SIGKILL else 0)
        until(lambda: not any(map(alive, {*family, *beside})), "that nothing is left")


async def test_no_more_processes_than_allowed_and_only_idle_ones_make_room(start: Any) -> None:
    entry = odd(isolation="user", max_processes=3)
    async with start(backends={"odd": entry}) as gateway:
        await gateway.listed("odd_pid")
        users = [gateway.as_(await gateway.new_key(subject=f"user{number}")) for number in range(4)]
        pids = [int(text(await user.call("odd_pid"))) for user in users]
        assert len(set(pids)) == 4
        async with asyncio.timeout(10):
            while sum(map(alive, pids)) > 2:  # and the one that lists are read from
                await asyncio.sleep(0.01)
        backend = gateway.house._backends.get("odd")
        held = [asyncio.create_task(user.call("odd_hold")) for user in users[:2]]
        while backend.health().in_flight < 2:
            await asyncio.sleep(0.01)
        refused = (await users[2].call("odd_pid"))["result"]["structuredContent"]["error"]
        assert (refused["kind"], refused["retryable"]) == ("unavailable", True)
        for task in held:
            task.cancel()
