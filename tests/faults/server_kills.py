"""SIGKILL of a server during a call: the call fails with `unavailable` within a second, the next one succeeds.

Neither descriptors nor processes may leak.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.faults.client import Client, connections
from tests.flows.killable_server import KillableServer
from tests.flows.process import ROOT, serving, until, write_settings

SERVER = str(ROOT / "tests" / "faults" / "server.py")
UNLIMITED = {"calls": "100000000/minute"}


@dataclass(frozen=True)
class KillResult:
    """Results of all rounds."""

    rounds: int
    slowest_seconds: float
    """Longest time from the kill to the response."""
    files: int
    """Descriptors that the gateway has leaked."""
    processes: int


async def kill_rounds(
    folder: Path, transport: Literal["stdio", "http"], era: str, rounds: int, seconds: float = 1e9
) -> KillResult:
    """Run the rounds, at most `seconds`. Raises `AssertionError` at the first failed round."""
    server = KillableServer("-I", "-S", SERVER, era) if transport == "http" else None
    try:
        if server is not None:
            await server.wait_until_listening()
            entry: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        else:
            entry = {"command": sys.executable, "args": ["-I", "-S", SERVER, era]}
        write_settings(folder, backends={"far": entry}, limits=UNLIMITED, log={"format": "json", "level": "warning"})
        with serving(folder) as served:
            until(lambda: "far_pid" in served.tool_names(), "its tools")
            target = Target(served.url, served.key, served.process.pid, era)
            return await run_rounds(target, server, folder / "held", rounds, seconds)
    finally:
        if server is not None:
            server.kill()


@dataclass(frozen=True)
class Target:
    """A gateway with a backend `far`, and its process."""

    url: str
    key: str
    pid: int
    era: str

    def files(self) -> int:
        """Number of open descriptors, without the database's: its pool opens a bounded number when it needs them."""
        return sum(".db" not in _link(each) for each in Path(f"/proc/{self.pid}/fd").iterdir())

    def children(self) -> int:
        """Number of child processes, including zombies."""
        return len(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())


async def run_rounds(
    target: Target, server: KillableServer | None, held: Path, rounds: int, seconds: float
) -> KillResult:
    async with connections() as http:
        client = Client(http, target.url, target.key, target.era)
        await client.open()
        await _round(client, server, held, 0)  # before counting: the first calls open long-lived connections
        files, processes = target.files(), target.children()
        slowest_seconds, done, deadline = 0.0, 0, time.monotonic() + seconds
        while done < rounds and time.monotonic() < deadline:
            done += 1
            slowest_seconds = max(slowest_seconds, await _round(client, server, held, done))
        await _wait_for(lambda: target.files() <= files and target.children() <= processes)
        return KillResult(done, slowest_seconds, target.files() - files, target.children() - processes)


def _link(descriptor: Path) -> str:
    """What a descriptor refers to; empty if it was closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


async def _round(client: Client, server: KillableServer | None, held: Path, number: int) -> float:
    pid = int((await client.call("far_pid")).text)
    held.unlink(missing_ok=True)
    call = asyncio.create_task(client.call("far_hold", {"path": str(held)}))
    await _wait_for(held.exists)
    killed = time.monotonic()
    if server is not None:
        server.kill()
    else:
        os.kill(pid, signal.SIGKILL)
    result = await call
    duration = time.monotonic() - killed
    assert result.kind == "unavailable", f"round {number}: {result.response}"
    assert duration < 1.0, f"round {number}: response after {duration:.2f} s"
    if server is not None:
        await server.start()
    retry = await client.call("far_pid")
    assert "content" in retry.response.get("result", {}), f"round {number}: {retry.response}"
    assert retry.text.isdigit(), f"round {number}: {retry.response}"
    assert int(retry.text) != pid
    return duration


async def _wait_for(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
