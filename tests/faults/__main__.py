"""Run fault scenarios one after another and print a line for each. The exit code is 1 if any limit is exceeded."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.faults.chart_site import chart_site
from tests.faults.collector import run_faulty_collectors
from tests.faults.dependency_faults import FaultOutcome, backend_faults, postgres_faults, redis_faults
from tests.faults.failing_backends import failing_backends
from tests.faults.hostile_tenant import run_hostile_tenant
from tests.faults.many_clients import many_clients
from tests.faults.memory import MEGABYTE, big_results
from tests.faults.replicas import ReplicaResult, SiteFactory, kill_replica, plain_site, restart_replicas
from tests.faults.server_kills import kill_rounds
from tests.faults.slow_clients import CLIENTS as SLOW_CLIENTS
from tests.faults.slow_clients import ROUNDS as SLOW_ROUNDS
from tests.faults.slow_clients import run_slow_clients
from tests.faults.soak import plot, soak
from tests.faults.task_kills import kill_task_replicas

Outcome = tuple[bool, str]
"""Whether all limits were met, and the summary to print."""
Scenario = Callable[[Path], Coroutine[Any, Any, Outcome]]

ROUNDS = 1000
SECONDS = 1800.0
CLIENTS = 200
REPLICA_SECONDS = 60.0
TASKS = 200
MAX_RESPONSE_SECONDS = 12.0
"""Limit on the duration of a call while a dependency of the gateway fails."""
MAX_RECOVERY_SECONDS = 10.0
CALLS = 1_000_000
MAX_SOAK_GROWTH = 2_000_000
"""Limit on the memory growth from the first to the second half of a soak, in bytes."""
MAX_SOAK_DIFFERENCE = 8
"""Limit on the growth of descriptors and tasks."""
PLOT = Path(__file__).parents[2] / "docs" / "images" / "soak.png"
MAX_GROWTH = 40 * MEGABYTE


def _kills(transport: str, era: str, rounds: int) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        result = await kill_rounds(folder, transport, era, rounds, SECONDS)  # type: ignore[arg-type]
        passed = result.rounds == rounds and result.files <= 0 and result.processes <= 0
        summary = f"{result.rounds} of {rounds} rounds, slowest response {result.slowest_seconds * 1000:.0f} ms"
        return passed, f"{summary}, {result.files} descriptors and {result.processes} processes leaked"

    return scenario


def _many_clients(transport: str, era: str, clients: int) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        result = await many_clients(folder, transport, era, clients)  # type: ignore[arg-type]
        passed = result.misdelivered == 0 and result.progress == 2 * result.calls and result.logs > 0
        summary = f"{result.calls} calls of {clients} clients, {result.progress} progress notifications"
        return passed, f"{summary}, {result.logs} log messages, {result.misdelivered} misdelivered"

    return scenario


async def _failing_backends(folder: Path) -> Outcome:
    result = await failing_backends(folder)
    passed = result.cpu <= 1.10 and result.p50 <= 1.5 and result.list_p50 <= 1.5
    return passed, f"CPU per call {result.cpu:.2f} x, p50 {result.p50:.2f} x, p50 of tools/list {result.list_p50:.2f} x"


async def _slow_clients(folder: Path) -> Outcome:
    result = await run_slow_clients(folder)
    passed = result.cpu <= 1.10 and result.latest_close <= 2.0 and result.closed == SLOW_CLIENTS * SLOW_ROUNDS
    summary = f"CPU per call {result.cpu:.2f} x, {result.closed} slow clients disconnected"
    return passed, f"{summary}, the last {result.latest_close:.1f} s after its timeout"


async def _collector(folder: Path) -> Outcome:
    result = await run_faulty_collectors(folder)
    passed = result.cpu <= 1.10 and not result.failed and result.growth <= 20
    summary = f"CPU per call {result.cpu:.2f} x (worst: {result.worst}), {result.failed} failed"
    return passed, f"{summary}, memory growth {result.growth:.1f} MB"


def _memory(era: str) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        growth = await big_results(folder, era)
        passed = growth.highest <= MAX_GROWTH
        return (
            passed,
            f"memory growth {growth.highest / MEGABYTE:.1f} MB at most, {growth.last / MEGABYTE:.1f} MB at end",
        )

    return scenario


def _dependency(run: Callable[[Path], Awaitable[FaultOutcome]]) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        outcome = await run(folder)
        in_time = outcome.slowest <= MAX_RESPONSE_SECONDS and outcome.recovered <= MAX_RECOVERY_SECONDS
        passed = outcome.calls > 20 and not outcome.unexpected and in_time
        summary = f"{outcome.calls} calls, {len(outcome.unexpected)} unexpected, slowest {outcome.slowest:.1f} s"
        return passed, f"{summary}, recovered after {outcome.recovered:.1f} s {outcome.unexpected[:3] or ''}"

    return scenario


def _restart(site: SiteFactory) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        return _judge_restart(await restart_replicas(folder, REPLICA_SECONDS, site))

    return scenario


def _judge_restart(result: ReplicaResult) -> Outcome:
    passed = result.calls > 100 and not result.failed and not result.broken
    summary = f"{result.calls} calls, {len(result.failed)} failed, {result.streams} streams, {result.resumed} resumed"
    return passed, f"{summary}, {result.broken} broken {result.failed[:2] or ''}"


async def _kill_replica(folder: Path) -> Outcome:
    result = await kill_replica(folder, REPLICA_SECONDS)
    ended = len(result.failed) + result.broken
    in_limits = ended <= result.in_flight and not result.lost_elsewhere and result.recovered <= 10
    passed = result.calls > 100 and in_limits
    summary = (
        f"{result.calls} calls, {len(result.failed)} failed and {result.broken} streams broken"
        f" of {result.in_flight} in flight, {result.lost_elsewhere} lost on other replicas"
    )
    return passed, f"{summary}, recovered after {result.recovered:.1f} s {result.failed[:3] or ''}"


async def _tasks_killed(folder: Path) -> Outcome:
    result = await kill_task_replicas(folder, TASKS, kills=3)
    summary = (
        f"{result.tasks} tasks, {result.kills} kills: {result.completed} completed, {result.failed} failed honestly,"
        f" {result.taken_over} taken over, {result.repeated} idempotent calls repeated, {len(result.problems)} problems"
    )
    passed = not result.problems and result.completed + result.failed == result.tasks and result.taken_over > 0
    return passed, f"{summary} {result.problems[:3] or ''}"


async def _hostile_tenant(folder: Path) -> Outcome:
    result = await run_hostile_tenant(folder)
    passed = not result.failed and result.p50 <= 1.5 and result.refused > 0
    summary = f"{result.calls} calls of the quiet tenant, {result.failed} rejected or timed out"
    summary = f"{summary}, p50 {result.p50:.2f} x {result.alone * 1000:.0f} ms"
    return passed, f"{summary}; {result.refused} calls of the hostile tenant rejected"


def _soak(calls: int) -> Scenario:
    async def scenario(folder: Path) -> Outcome:
        result = await soak(folder, calls)
        plot(result, PLOT)
        memory, files, tasks = (result.growth(metric) for metric in ("rss", "files", "tasks"))
        in_limits = memory <= MAX_SOAK_GROWTH and files <= MAX_SOAK_DIFFERENCE and tasks <= MAX_SOAK_DIFFERENCE
        passed = not result.failed and in_limits
        summary = f"{result.calls} calls, {result.errors} invalid on purpose, {result.sessions} sessions with a stream"
        growth = f"{memory / MEGABYTE:+.1f} MB, {files:+.0f} descriptors, {tasks:+.0f} tasks"
        return passed, f"{summary}, {len(result.failed)} failed; growth {growth}; {PLOT.name} {result.failed[:2] or ''}"

    return scenario


def scenarios(rounds: int, clients: int, calls: int) -> dict[str, Scenario]:
    return {
        "kill-stdio-modern": _kills("stdio", "modern", rounds),
        "kill-stdio-handshake": _kills("stdio", "handshake", rounds),
        "kill-http-modern": _kills("http", "modern", rounds),
        "kill-http-handshake": _kills("http", "handshake", rounds),
        "many-clients-http-modern": _many_clients("http", "modern", clients),
        "many-clients-http-handshake": _many_clients("http", "handshake", clients),
        "many-clients-stdio": _many_clients("stdio", "handshake", clients),
        "failing-backends": _failing_backends,
        "slow-clients": _slow_clients,
        "collector": _collector,
        "memory-modern": _memory("modern"),
        "memory-handshake": _memory("handshake"),
        "hostile-tenant": _hostile_tenant,
        "redis-faults": _dependency(redis_faults),
        "postgres-faults": _dependency(postgres_faults),
        "backend-faults": _dependency(backend_faults),
        "replicas-rolling": _restart(plain_site),
        "replicas-chart": _restart(chart_site),
        "replicas-killed": _kill_replica,
        "tasks-killed": _tasks_killed,
        "soak": _soak(calls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="scenarios to run (default: all except soak)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills in each of the four kill scenarios")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="clients in each many-clients scenario")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of the soak scenario")
    arguments = parser.parse_args()
    available = scenarios(arguments.rounds, arguments.clients, arguments.calls)
    if unknown := set(arguments.names) - set(available):
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}; choose from {', '.join(available)}")
    failed = 0
    for name in arguments.names or [each for each in available if each != "soak"]:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                passed, summary = asyncio.run(available[name](Path(folder)))
            except AssertionError as exc:
                passed, summary = False, str(exc)[:500]
        failed += not passed
        print(f"{'ok  ' if passed else 'FAIL'} {name:27} {time.monotonic() - started:6.0f} s  {summary}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
