"""Runs the attacks against a real gateway and measures the calls of tenant B, beside runs with harmless calls."""

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.faults.client import Client, connections
from tests.flows.killable_server import killable_server
from tests.flows.process import FILE, environment, run, serving, write_settings
from tests.isolation.attacks import HARMLESS

RATE = 20.0
"""Calls of tenant B per second."""
MAX_RATIO = 2.0
CHANGING = str(Path(__file__).parents[1] / "flows" / "fixtures" / "changing_stdio.py")
TOOLS = ("far_echo", "core_ping")
"""The calls of tenant B in turn: over the shared server, and in the gateway's process."""


@dataclass(frozen=True)
class AttackResult:
    name: str
    calls: int
    failed: int
    """Calls of tenant B that were refused, failed or timed out."""
    first_failure: str
    p95: float
    """Seconds; median of the rounds."""
    control_p95: float
    steps: int

    @property
    def ratio(self) -> float:
        return self.p95 / self.control_p95

    @property
    def passed(self) -> bool:
        return self.failed == 0 and self.ratio <= MAX_RATIO


@dataclass(frozen=True)
class Site:
    base: str
    attacker_key: str
    victim: Client

    async def measure(self, attack: str, seconds: float) -> tuple[list[float], list[str], int]:
        """Return the durations of B's calls, its failures, and the steps of A."""
        async with self._attacker(attack) as steps:
            times, failures = await self._call_steadily(seconds)
        return times, failures, steps[0]

    async def _call_steadily(self, seconds: float) -> tuple[list[float], list[str]]:
        times: list[float] = []
        failures: list[str] = []

        async def call(tool: str) -> None:
            started = time.perf_counter()
            try:
                answer = (await self.victim.call(tool, {})).response
            except httpx.HTTPError as exc:
                answer = {"error": repr(exc)}
            result: Any = answer.get("result")
            if result is None or result.get("isError"):
                failures.append(f"{tool}: {str(answer)[:300]}")
            times.append(time.perf_counter() - started)

        tools, ends = itertools.cycle(TOOLS), time.monotonic() + seconds
        async with asyncio.TaskGroup() as calls:
            while time.monotonic() < ends:
                calls.create_task(call(next(tools)))
                await asyncio.sleep(1 / RATE)
        return times, failures

    @asynccontextmanager
    async def _attacker(self, attack: str) -> AsyncGenerator[list[int]]:
        """Run tenant A in a process of its own. The list has its number of steps after the block."""
        command = (sys.executable, "-m", "tests.isolation.attacks", attack, self.base, self.attacker_key)
        process = await asyncio.create_subprocess_exec(
            *command, env=environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        steps = [0]
        try:
            assert await process.stdout.readline() == b"attacking\n"
            yield steps
            process.stdin.close()
            steps[0] = int(await process.stdout.readline() or 0)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def open_site(folder: Path) -> AsyncGenerator[Site]:
    program = folder / "program"
    program.mkdir()
    (program / "description").write_text("Draws a line.")
    with killable_server("-m", "tests.isolation.far_server") as far:
        await far.wait_until_listening()
        write_settings(
            folder,
            backends={
                "core": {"module": "backends.core"},
                "knowledge": {"module": "backends.knowledge"},
                "far": {"url": f"http://127.0.0.1:{far.port}/mcp", "allow_private": True, "timeouts": {"*": 5}},
                "proc": {"command": sys.executable, "args": ["-I", "-S", CHANGING, "modern", str(program)]},
            },
            tenants={"victim": {}, "attacker": {}},
            # The attacker's limits are part of the defence: only the victim's own rate needs more than the default.
            limits={"calls": "6000/minute"},
            log={"format": "json", "level": "error"},
        )
        create = ("key", "create", "--config", FILE, "--subject", "load", "--tenant")
        with serving(folder) as served:
            victim, attacker = [run(folder, *create, tenant).stdout.strip() for tenant in ("victim", "attacker")]
            async with connections(64) as http:
                site = Site(served.base, attacker, Client(http, served.url, victim))
                await site.measure(HARMLESS, 1.0)  # warm up
                yield site


async def run_attacks(site: Site, names: Sequence[str], rounds: int, seconds: float) -> AsyncGenerator[AttackResult]:
    for name in names:
        p95: list[float] = []
        control_p95: list[float] = []
        failures: list[str] = []
        calls = steps = 0
        for _ in range(rounds):
            control, failed, _ = await site.measure(HARMLESS, seconds)
            times, failed_under_attack, made = await site.measure(name, seconds)
            failures += failed + failed_under_attack
            calls += len(control) + len(times)
            steps += made
            p95.append(percentile_95(times))
            control_p95.append(percentile_95(control))
        yield AttackResult(
            name,
            calls,
            len(failures),
            failures[0] if failures else "",
            statistics.median(p95),
            statistics.median(control_p95),
            steps,
        )


def percentile_95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]
