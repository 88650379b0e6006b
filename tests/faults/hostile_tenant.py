"""A tenant that sends twenty times its share: what another notices of it, beside rounds in which nothing is sent."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import Client, connections
from tests.flows.process import FILE, environment, run, serving, write_settings

SHARE = 8
TIMES = 20
ROUNDS = 6
CALLS = 60
WORK = 0.1
"""Seconds that a call takes at the backend."""


@dataclass(frozen=True)
class Hostile:
    calls: int
    failed: int
    """Calls of the quiet tenant that were refused or timed out."""
    p50: float
    """Its median beside the hostile tenant, as a multiple of its median in the rounds between."""
    alone: float
    """Seconds: its median in those."""
    refused: int
    """Calls of the hostile tenant that were told to wait."""


async def hostile(folder: Path, rounds: int = ROUNDS) -> Hostile:
    write_settings(
        folder,
        backends={"busy": {"module": "tests.faults.busy"}},
        tenants={"quiet": {}, "hostile": {}},
        shares={"per_tenant": SHARE, "per_principal": SHARE, "waiting": SHARE},
        limits={"calls": "100000000/minute"},
        log={"format": "json", "level": "warning"},
    )
    create = ("key", "create", "--config", FILE, "--subject", "load", "--tenant")
    with serving(folder) as served:
        keys = [run(folder, *create, tenant).stdout.strip() for tenant in ("quiet", "hostile")]
        async with connections(4) as calm:
            good = Client(calm, served.url, keys[0])
            await _round(good)  # warm
            alone: list[float] = []
            beside: list[float] = []
            failed = refused = 0
            for _ in range(rounds):
                times, wrong = await _round(good)
                alone += times
                failed += wrong
                async with _crowd(served.port, keys[1]) as counted:
                    times, wrong = await _round(good)
                beside += times
                failed += wrong
                refused += counted[0]
    quiet = statistics.median(alone)
    return Hostile(len(alone) + len(beside) + failed, failed, statistics.median(beside) / quiet, quiet, refused)


async def _round(client: Client) -> tuple[list[float], int]:
    """Half the tenant's share at a time; the times of those that were answered, and how many were not."""
    times: list[float] = []
    wrong = 0

    async def some() -> None:
        nonlocal wrong
        for _ in range(CALLS // 4):
            began = time.perf_counter()
            said = await client.call("busy_work", {"seconds": WORK})
            if "content" in said.answer.get("result", {}) and not said.answer["result"].get("isError"):
                times.append(time.perf_counter() - began)
            else:
                wrong += 1

    await asyncio.gather(*(some() for _ in range(4)))
    return times, wrong


@asynccontextmanager
async def _crowd(port: int, key: str) -> AsyncIterator[list[int]]:
    """The hostile tenant, in a process of its own: what it costs to be hostile must not be the quiet one's time.

    Gives, once it is over, how many calls were refused.
    """
    command = (sys.executable, "-m", "tests.faults.pusher", str(port), str(SHARE * TIMES), str(WORK))
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(PUSHER_KEY=key),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counted = [0]
    try:
        assert await process.stdout.readline() == b"pushing\n"
        yield counted
        process.stdin.close()
        counted[0] = int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()
