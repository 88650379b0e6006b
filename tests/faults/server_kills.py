"""kill -9 of a server in mid-call: `unavailable` within a second, the next call works, nothing is left behind."""

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
from tests.flows.killable import Program
from tests.flows.process import ROOT, serving, until, write_settings

SERVER = str(ROOT / "tests" / "faults" / "server.py")
UNLIMITED = {"calls": "100000000/minute"}


@dataclass(frozen=True)
class Kills:
    """What so many rounds came to."""

    rounds: int
    slowest: float
    """Seconds from the kill to the answer."""
    files: int
    """Descriptors that the gateway has more than before."""
    processes: int


async def kill_rounds(
    folder: Path, way: Literal["stdio", "http"], era: str, rounds: int, seconds: float = 1e9
) -> Kills:
    """At most `seconds`. Raises `AssertionError` at the first round that went wrong."""
    server = Program("-I", "-S", SERVER, era) if way == "http" else None
    try:
        if server is not None:
            await server.listens()
            entry: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        else:
            entry = {"command": sys.executable, "args": ["-I", "-S", SERVER, era]}
        write_settings(folder, backends={"far": entry}, limits=UNLIMITED, log={"format": "json", "level": "warning"})
        with serving(folder) as served:
            until(lambda: "far_pid" in served.tool_names(), "its tools")
            target = Target(served.url, served.key, served.process.pid, era)
            return await rounds_on(target, server, folder / "held", rounds, seconds)
    finally:
        if server is not None:
            server.kill()


@dataclass(frozen=True)
class Target:
    """A gateway with a backend `far`, and the process it runs in."""

    url: str
    key: str
    pid: int
    era: str

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def children(self) -> int:
        """Zombies included."""
        return len(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())


async def rounds_on(target: Target, server: Program | None, held: Path, rounds: int, seconds: float) -> Kills:
    async with connections() as http:
        client = Client(http, target.url, target.key, target.era)
        await client.open()
        await _round(client, server, held, 0)  # before counting: first calls open what stays open
        files, processes = target.files(), target.children()
        slowest, done, ends = 0.0, 0, time.monotonic() + seconds
        while done < rounds and time.monotonic() < ends:
            done += 1
            slowest = max(slowest, await _round(client, server, held, done))
        await _settled(lambda: target.files() <= files and target.children() <= processes)
        return Kills(done, slowest, target.files() - files, target.children() - processes)


async def _round(client: Client, server: Program | None, held: Path, number: int) -> float:
    pid = int((await client.call("far_pid")).text)
    held.unlink(missing_ok=True)
    call = asyncio.create_task(client.call("far_hold", {"path": str(held)}))
    await _settled(held.exists)
    killed = time.monotonic()
    if server is not None:
        server.kill()
    else:
        os.kill(pid, signal.SIGKILL)
    said = await call
    took = time.monotonic() - killed
    assert said.kind == "unavailable", f"round {number}: {said.answer}"
    assert took < 1.0, f"round {number}: told after {took:.2f} s"
    if server is not None:
        await server.start()
    again = await client.call("far_pid")
    assert "content" in again.answer.get("result", {}), f"round {number}: {again.answer}"
    assert again.text.isdigit(), f"round {number}: {again.answer}"
    assert int(again.text) != pid
    return took


async def _settled(fact: Callable[[], bool], within: float = 10.0) -> None:
    ends = time.monotonic() + within
    while not fact() and time.monotonic() < ends:
        await asyncio.sleep(0.002)
