"""`python -m tests.faults [SCENARIO…]`: each in turn, a line each, exit code 1 if any bound is not met."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.faults.away import Away, backend_away, postgres_away, redis_away
from tests.faults.charted import charted_site
from tests.faults.collector import bad_collectors
from tests.faults.crowd import crowd
from tests.faults.hostile import hostile
from tests.faults.kills import kill_rounds
from tests.faults.memory import MEGABYTE, big_results
from tests.faults.neighbours import neighbours
from tests.faults.replicas import Seen, Where, killed, plain_site, rolling
from tests.faults.slow import CLIENTS as DRIPPING
from tests.faults.slow import ROUNDS as DRIPS
from tests.faults.slow import slow_clients
from tests.faults.soak import draw, soak

Told = tuple[bool, str]
Scenario = Callable[[Path], Awaitable[Told]]

ROUNDS = 1000
SECONDS = 1800.0
CLIENTS = 200
REPLICA_SECONDS = 60.0
MOST_WAIT = 12.0
"""Seconds in which a call is answered while something behind the gateway is away."""
MOST_RECOVERY = 10.0
CALLS = 1_000_000
SOAK_GROWTH = 2_000_000
"""Bytes that the second half of a soak may hold over the first."""
LANES = 8
PLOT = Path(__file__).parents[2] / "docs" / "images" / "soak.png"
MOST_GROWTH = 40 * MEGABYTE


def _kills(way: str, era: str, rounds: int) -> Scenario:
    async def scenario(folder: Path) -> Told:
        done = await kill_rounds(folder, way, era, rounds, SECONDS)  # type: ignore[arg-type]
        good = done.rounds == rounds and done.files <= 0 and done.processes <= 0
        slow = f"told within {done.slowest * 1000:.0f} ms"
        return good, f"{done.rounds} of {rounds} rounds, {slow}, {done.files} files and {done.processes} processes left"

    return scenario


def _crowd(way: str, era: str, clients: int) -> Scenario:
    async def scenario(folder: Path) -> Told:
        came = await crowd(folder, way, era, clients)  # type: ignore[arg-type]
        good = came.strangers == 0 and came.progress == 2 * came.calls and came.logs > 0
        return (
            good,
            f"{came.calls} calls of {clients}, {came.progress} reports, {came.logs} logs, {came.strangers} astray",
        )

    return scenario


async def _neighbours(folder: Path) -> Told:
    found = await neighbours(folder)
    good = found.cpu <= 1.10 and found.p50 <= 1.5 and found.list_p50 <= 1.5
    return good, f"CPU a call {found.cpu:.2f} x, p50 {found.p50:.2f} x, p50 of tools/list {found.list_p50:.2f} x"


async def _slow(folder: Path) -> Told:
    found = await slow_clients(folder)
    good = found.cpu <= 1.10 and found.late <= 2.0 and found.cut == DRIPPING * DRIPS
    return good, f"CPU a call {found.cpu:.2f} x, {found.cut} slow clients cut, the last {found.late:.1f} s late"


async def _collector(folder: Path) -> Told:
    found = await bad_collectors(folder)
    good = found.cpu <= 1.10 and not found.failed and found.grown <= 20
    told = f"CPU a call {found.cpu:.2f} x (the worst: {found.worst}), {found.failed} failed"
    return good, f"{told}, memory grew {found.grown:.1f} MB"


def _memory(era: str) -> Scenario:
    async def scenario(folder: Path) -> Told:
        grown = await big_results(folder, era)
        good = grown.highest <= MOST_GROWTH
        return good, f"{grown.highest / MEGABYTE:.1f} MB at its highest, {grown.last / MEGABYTE:.1f} MB in the end"

    return scenario


def _away(of: Callable[[Path], Awaitable[Away]]) -> Scenario:
    async def scenario(folder: Path) -> Told:
        seen = await of(folder)
        good = seen.calls > 20 and not seen.wrong and seen.slowest <= MOST_WAIT and seen.recovered <= MOST_RECOVERY
        told = f"{seen.calls} calls, {len(seen.wrong)} wrong, the slowest {seen.slowest:.1f} s"
        return good, f"{told}, well again after {seen.recovered:.1f} s {seen.wrong[:3] or ''}"

    return scenario


def _rolling(site: Where) -> Scenario:
    async def scenario(folder: Path) -> Told:
        return _rolled(await rolling(folder, REPLICA_SECONDS, site))

    return scenario


def _rolled(seen: Seen) -> Told:
    good = seen.calls > 100 and not seen.failed and not seen.broken
    told = f"{seen.calls} calls, {len(seen.failed)} failed, {seen.streams} streams, {seen.resumed} resumed"
    return good, f"{told}, {seen.broken} broken {seen.failed[:2] or ''}"


async def _killed(folder: Path) -> Told:
    seen = await killed(folder, REPLICA_SECONDS)
    ended = len(seen.failed) + seen.broken
    good = seen.calls > 100 and ended <= seen.in_flight and not seen.elsewhere and seen.recovered <= 10
    told = (
        f"{seen.calls} calls, {len(seen.failed)} failed and {seen.broken} streams broken of {seen.in_flight} in flight,"
        f" {seen.elsewhere} lost elsewhere"
    )
    return good, f"{told}, whole again after {seen.recovered:.1f} s {seen.failed[:3] or ''}"


async def _hostile(folder: Path) -> Told:
    found = await hostile(folder)
    good = not found.failed and found.p50 <= 1.5 and found.refused > 0
    told = f"{found.calls} calls of the quiet tenant, {found.failed} refused or timed out"
    told = f"{told}, p50 {found.p50:.2f} x {found.alone * 1000:.0f} ms"
    return good, f"{told}; {found.refused} calls of the hostile one refused"


def _soak(calls: int) -> Scenario:
    async def scenario(folder: Path) -> Told:
        soaked = await soak(folder, calls)
        draw(soaked, PLOT)
        memory, files, tasks = (soaked.growth(what) for what in ("rss", "files", "tasks"))
        good = not soaked.failed and memory <= SOAK_GROWTH and files <= LANES and tasks <= LANES
        told = f"{soaked.calls} calls, {soaked.errors} wrong on purpose, {soaked.sessions} sessions with a stream"
        grown = f"{memory / MEGABYTE:+.1f} MB, {files:+.0f} descriptors, {tasks:+.0f} tasks"
        return good, f"{told}, {len(soaked.failed)} failed; grown by {grown}; {PLOT.name} {soaked.failed[:2] or ''}"

    return scenario


def scenarios(rounds: int, clients: int, calls: int) -> dict[str, Scenario]:
    return {
        "kill-stdio-modern": _kills("stdio", "modern", rounds),
        "kill-stdio-handshake": _kills("stdio", "handshake", rounds),
        "kill-http-modern": _kills("http", "modern", rounds),
        "kill-http-handshake": _kills("http", "handshake", rounds),
        "crowd-http-modern": _crowd("http", "modern", clients),
        "crowd-http-handshake": _crowd("http", "handshake", clients),
        "crowd-stdio": _crowd("stdio", "handshake", clients),
        "neighbours": _neighbours,
        "slow-clients": _slow,
        "collector": _collector,
        "memory-modern": _memory("modern"),
        "memory-handshake": _memory("handshake"),
        "hostile-tenant": _hostile,
        "redis-away": _away(redis_away),
        "postgres-away": _away(postgres_away),
        "backend-away": _away(backend_away),
        "replicas-rolling": _rolling(plain_site),
        "replicas-chart": _rolling(charted_site),
        "replicas-killed": _killed,
        "soak": _soak(calls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="which; all unless given")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills in each of the four kill scenarios")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--calls", type=int, default=CALLS, help="of the soak, which runs only when it is named")
    given = parser.parse_args()
    every = scenarios(given.rounds, given.clients, given.calls)
    if unknown := set(given.names) - set(every):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    failed = 0
    for name in given.names or [each for each in every if each != "soak"]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                good, told = asyncio.run(every[name](Path(folder)))
            except AssertionError as exc:
                good, told = False, str(exc)[:500]
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:22} {time.monotonic() - began:6.0f} s  {told}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
