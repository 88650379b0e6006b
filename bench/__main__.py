"""`python -m bench`: measure, show, write; with `--profile`, look inside one candidate instead."""

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
from bench.report import Setting, show, write
from bench.run import QUICK, Plan, measure
from bench.summary import summarise

_OUT = Path(__file__).parent / "out"


def main() -> int:
    options = _parse()
    console = Console()
    cores = Cores.of_this_machine()
    os.sched_setaffinity(0, {cores.driver})
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        if options.profile:
            return 0 if uvloop.run(profile(_named(options.profile), cores, Path(folder), console)) else 1
        chosen = [_named(name) for name in options.only.split(",")] if options.only else (*CANDIDATES, *peers())
        return _bench(chosen, QUICK if options.quick else Plan(), cores, Path(folder), console, options.hold)


def _bench(chosen: Sequence[Candidate], plan: Plan, cores: Cores, folder: Path, console: Console, hold: bool) -> int:
    setting = Setting.of_now(cores)
    findings = uvloop.run(measure(chosen, plan, cores, folder, lambda text: console.print(text, style="dim")))
    summary = summarise(findings)
    show(console, summary)
    write(_OUT, setting, plan, findings, summary)
    draw(_OUT / "bench.png", setting, summary)
    console.print(f"written: {_OUT}/bench.json, bench.md, bench.png")
    troubles = [trouble for verdict in summary.verdicts if (trouble := verdict.trouble)]
    for trouble in troubles:
        console.print(trouble, style="red", markup=False)
    return 1 if hold and troubles else 0


def _named(name: str) -> Candidate:
    for candidate in (*CANDIDATES, *peers()):
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in (*CANDIDATES, *peers()))
    raise SystemExit(f"no candidate is called {name!r}; there are: {known}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds, under a minute")
    parser.add_argument("--only", metavar="NAMES", help="these candidates only, separated by commas")
    parser.add_argument("--profile", metavar="NAME", help="sample this candidate under load with py-spy")
    parser.add_argument("--assert", dest="hold", action="store_true", help="fail when a bound does not hold")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
