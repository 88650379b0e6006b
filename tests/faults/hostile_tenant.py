"""A tenant sends twenty times its share: the effect on another tenant, relative to rounds without load."""

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
OVERLOAD_FACTOR = 20
ROUNDS = 6
CALLS = 60
WORK = 0.1
"""Duration of a call at the backend in seconds."""


@dataclass(frozen=True)
class HostileTenantResult:
    calls: int
    failed: int
    """Calls of the quiet tenant that were rejected or timed out."""
    p50: float
    """The quiet tenant's median duration under load, relative to the rounds without load."""
    alone: float
    """The quiet tenant's median duration without load, in seconds."""
    refused: int
    """Calls of the hostile tenant that were rejected by a limit."""


async def run_hostile_tenant(folder: Path, rounds: int = ROUNDS) -> HostileTenantResult:
    write_settings(
        folder,
        backends={"busy": {"module": "tests.faults.slow_backend"}},
        tenants={"quiet": {}, "hostile": {}},
        shares={"per_tenant": SHARE, "per_principal": SHARE, "waiting": SHARE},
        limits={"calls": "100000000/minute"},
        log={"format": "json", "level": "warning"},
    )
    create = ("key", "create", "--config", FILE, "--subject", "load", "--tenant")
    with serving(folder) as served:
        keys = [run(folder, *create, tenant).stdout.strip() for tenant in ("quiet", "hostile")]
        async with connections(4) as http:
            quiet_client = Client(http, served.url, keys[0])
            await _round(quiet_client)  # warm up
            alone: list[float] = []
            under_load: list[float] = []
            failed = refused = 0
            for _ in range(rounds):
                times, failed_calls = await _round(quiet_client)
                alone += times
                failed += failed_calls
                async with _flood(served.port, keys[1]) as rejected:
                    times, failed_calls = await _round(quiet_client)
                under_load += times
                failed += failed_calls
                refused += rejected[0]
    alone_median = statistics.median(alone)
    return HostileTenantResult(
        len(alone) + len(under_load) + failed,
        failed,
        statistics.median(under_load) / alone_median,
        alone_median,
        refused,
    )


async def _round(client: Client) -> tuple[list[float], int]:
    """Use half of the tenant's share. Returns the durations of successful calls and the number of failed ones."""
    times: list[float] = []
    failed_calls = 0

    async def call_sequentially() -> None:
        nonlocal failed_calls
        for _ in range(CALLS // 4):
            started = time.perf_counter()
            result = await client.call("busy_work", {"seconds": WORK})
            if "content" in result.response.get("result", {}) and not result.response["result"].get("isError"):
                times.append(time.perf_counter() - started)
            else:
                failed_calls += 1

    await asyncio.gather(*(call_sequentially() for _ in range(4)))
    return times, failed_calls


@asynccontextmanager
async def _flood(port: int, key: str) -> AsyncIterator[list[int]]:
    """Run the hostile tenant in its own process, so that its CPU time does not slow the quiet tenant's client.

    Yields a list whose first item is the number of rejected calls after the block.
    """
    command = (sys.executable, "-m", "tests.faults.flood_client", str(port), str(SHARE * OVERLOAD_FACTOR), str(WORK))
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(FLOOD_KEY=key),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    rejected = [0]
    try:
        assert await process.stdout.readline() == b"flooding\n"
        yield rejected
        process.stdin.close()
        rejected[0] = int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()
