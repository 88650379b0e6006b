"""`python -m bench.tail`: the slowest calls with 256 connections of one principal through one HTTP backend.

Beside the bare forwarder in the same run. Every limit is above the load, so that no call has to wait for another.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from bench.candidates import TAIL, Candidate, StartError, start_candidate
from bench.driver import close_connections, drive, open_connections
from bench.process import Cores
from bench.run import wait_for_first_call, wait_until_idle

_CONNECTIONS: Final = 256
_SECONDS: Final = 4.0
_ROUNDS: Final = 3


async def measure(candidate: Candidate, folder: Path, cores: Cores) -> float:
    """Print a row for each round. Returns the median of the slowest calls as multiples of p50."""
    ratios: list[float] = []
    with start_candidate(candidate, folder / candidate.name, cores) as run:
        await wait_for_first_call(run)
        for _ in range(_ROUNDS):
            connections = await open_connections([run.endpoint] * _CONNECTIONS)
            await wait_until_idle(run.server)
            tally = await drive(connections, seconds=_SECONDS)
            close_connections(connections)
            await wait_until_idle(run.server)
            p50, p99, p999, slowest = (tally.histogram.percentile(share) / 1e6 for share in (0.5, 0.99, 0.999, 1.0))
            ratios.append(slowest / p50)
            print(
                f"| {candidate.title} | {tally.calls} | {tally.errors} | {p50:.1f} | {p99:.1f} | {p999:.1f} |"
                f" {slowest:.1f} | {slowest / p50:.1f} |",
                flush=True,
            )
    return sorted(ratios)[len(ratios) // 2]


def main() -> int:
    cores = Cores.detect()
    os.sched_setaffinity(0, {cores.driver})
    print("| candidate | calls | errors | p50 ms | p99 ms | p99.9 ms | max ms | max / p50 |")
    print("|---|---|---|---|---|---|---|---|")
    passed = True
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        for candidate in TAIL:
            try:
                ratio = uvloop.run(measure(candidate, Path(folder), cores))
            except StartError as exc:
                print(f"{candidate.name}: {exc}")
                return 1
            if candidate.bound is not None and ratio > candidate.bound:
                print(f"{candidate.name}: the slowest call takes {ratio:.1f} x p50, at most {candidate.bound:g}")
                passed = False
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
