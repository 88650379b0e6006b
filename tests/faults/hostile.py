"""A tenant that sends twenty times its share: what another notices of it, beside rounds in which nothing is sent."""

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import Client, connections
from tests.flows.process import FILE, run, serving, write_settings

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
        async with connections(4) as calm, connections(SHARE * TIMES) as wild:
            good, bad = Client(calm, served.url, keys[0]), Client(wild, served.url, keys[1])
            await _round(good)  # warm
            alone: list[float] = []
            beside: list[float] = []
            failed = refused = 0
            for _ in range(rounds):
                times, wrong = await _round(good)
                alone += times
                failed += wrong
                stop = asyncio.Event()
                crowd = [asyncio.create_task(_push(bad, stop)) for _ in range(SHARE * TIMES)]
                await asyncio.sleep(0.5)
                times, wrong = await _round(good)
                beside += times
                failed += wrong
                stop.set()
                refused += sum(await asyncio.gather(*crowd))
    ratio = statistics.median(beside) / statistics.median(alone)
    return Hostile(len(alone) + len(beside) + failed, failed, ratio, refused)


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


async def _push(client: Client, stop: asyncio.Event) -> int:
    refused = 0
    while not stop.is_set():
        said = await client.call("busy_work", {"seconds": WORK})
        error = said.answer["result"].get("_meta", {}).get("gatehouse/error") or {}
        if "rate_limited" in (said.kind, error.get("kind")):
            refused += 1
            # As a client does that heeds nobody, but leaves the machine some time to serve at all.
            await asyncio.sleep(0.25)
    return refused
