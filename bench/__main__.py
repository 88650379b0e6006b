"""`python -m bench`: measure all candidates and write a report; with `--profile`, profile one candidate instead."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench.candidates import CANDIDATES, Candidate
from bench.peers import peers
from bench.plot import draw
from bench.process import Cores
from bench.profile import profile
from bench.report import Environment, show, write
from bench.run import QUICK, Plan, measure
from bench.summary import summarise

_OUT = Path(__file__).parent / "out"


def main() -> int:
    options = _parse()
    console = Console()
    cores = Cores.detect()
    os.sched_setaffinity(0, {cores.driver})
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        if options.profile:
            return 0 if uvloop.run(profile(_find_candidate(options.profile), cores, Path(folder), console)) else 1
        candidates = (
            [_find_candidate(name) for name in options.only.split(",")] if options.only else (*CANDIDATES, *peers())
        )
        return _bench(
            candidates, QUICK if options.quick else Plan(), cores, Path(folder), console, options.check_bounds
        )


def _bench(
    candidates: Sequence[Candidate], plan: Plan, cores: Cores, folder: Path, console: Console, check_bounds: bool
) -> int:
    environment = Environment.detect(cores)
    results = uvloop.run(measure(candidates, plan, cores, folder, lambda text: console.print(text, style="dim")))
    summary = summarise(results)
    show(console, summary)
    write(_OUT, environment, plan, results, summary)
    draw(_OUT / "bench.png", environment, summary)
    console.print(f"written: {_OUT}/bench.json, bench.md, bench.png")
    problems = [problem for candidate in summary.candidates if (problem := candidate.problem)]
    for problem in problems:
        console.print(problem, style="red", markup=False)
    return 1 if check_bounds and problems else 0


def _find_candidate(name: str) -> Candidate:
    for candidate in (*CANDIDATES, *peers()):
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in (*CANDIDATES, *peers()))
    raise SystemExit(f"Unknown candidate {name!r}. Known candidates: {known}.")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run two short rounds, in under a minute")
    parser.add_argument("--only", metavar="NAMES", help="measure only these candidates, separated by commas")
    parser.add_argument("--profile", metavar="NAME", help="profile this candidate under load with py-spy")
    parser.add_argument(
        "--assert", dest="check_bounds", action="store_true", help="exit with 1 when a bound is exceeded"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
