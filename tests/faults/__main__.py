"""`python -m tests.faults [SCENARIO…]`: each in turn, a line each, exit code 1 if any bound is not met."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.faults.charted import charted_site
from tests.faults.crowd import crowd
from tests.faults.kills import kill_rounds
from tests.faults.memory import MEGABYTE, big_results
from tests.faults.neighbours import neighbours
from tests.faults.replicas import Seen, Where, killed, plain_site, rolling
from tests.faults.slow import CLIENTS as DRIPPING
from tests.faults.slow import ROUNDS as DRIPS
from tests.faults.slow import slow_clients

Told = tuple[bool, str]
Scenario = Callable[[Path], Awaitable[Told]]

ROUNDS = 1000
SECONDS = 1800.0
CLIENTS = 200
REPLICA_SECONDS = 60.0
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


def _memory(era: str) -> Scenario:
    async def scenario(folder: Path) -> Told:
        grown = await big_results(folder, era)
        good = grown.highest <= MOST_GROWTH
        return good, f"{grown.highest / MEGABYTE:.1f} MB at its highest, {grown.last / MEGABYTE:.1f} MB in the end"

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
    good = seen.calls > 100 and len(seen.failed) + seen.broken <= seen.in_flight + 1 and seen.recovered <= 10
    told = (
        f"{seen.calls} calls, {len(seen.failed)} failed and {seen.broken} streams broken of {seen.in_flight} in flight"
    )
    return good, f"{told}, whole again after {seen.recovered:.1f} s"


def scenarios(rounds: int, clients: int) -> dict[str, Scenario]:
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
        "memory-modern": _memory("modern"),
        "memory-handshake": _memory("handshake"),
        "replicas-rolling": _rolling(plain_site),
        "replicas-chart": _rolling(charted_site),
        "replicas-killed": _killed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="which; all unless given")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills in each of the four kill scenarios")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    given = parser.parse_args()
    every = scenarios(given.rounds, given.clients)
    if unknown := set(given.names) - set(every):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    failed = 0
    for name in given.names or every:
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
