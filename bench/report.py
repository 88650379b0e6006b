"""Reports a run: tables in the terminal, `bench.json` with every cell, and `bench.md` for a README."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bench.process import Cores
from bench.run import Plan, RunResults
from bench.summary import HEADLINE_CONCURRENCY, CandidateSummary, Line, Summary

PACKAGES = ("gatehouse-mcp", "mcp", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")

_SUMMARY_COLUMNS = ("candidate", "CPU µs", "ratio", "bound", "start s", "idle MB", "end MB", "errors")
_DETAIL_COLUMNS = ("candidate", "conns", "CPU µs", "ratio", "p50 ms", "p99 ms", "calls/s", "driver")

_METHOD = (
    "CPU is user and system time of the server's process tree per call; the first table shows it at concurrency "
    f"{HEADLINE_CONCURRENCY[0]} and {HEADLINE_CONCURRENCY[1]}. Start is the time from process start to the first "
    "answered call; memory is RSS; driver is the CPU of the load driver per call, in µs. Candidates are measured in "
    "turn, figures are medians over rounds, and ratio is the CPU relative to the baseline in the same round."
)


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine, software versions and time of a run."""

    date: str
    cpu: str
    cores: int
    pinned: str
    python: str
    packages: dict[str, str]
    load_before: float

    @classmethod
    def detect(cls, cores: Cores) -> "Environment":
        pinned = f"server on core {cores.server}, load driver on core {cores.driver}"
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            cpu=_cpu_model(),
            cores=os.cpu_count() or 1,
            pinned=f"{pinned} (shared: latencies are not meaningful)" if cores.is_shared else pinned,
            python=platform.python_version(),
            packages={name: version(name) for name in PACKAGES},
            load_before=round(os.getloadavg()[0], 2),
        )


def show(console: Console, summary: Summary) -> None:
    for title, headers, rows in _tables(summary):
        table = Table(title=title, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
        table.add_column(headers[0], no_wrap=True)
        for header in headers[1:]:
            table.add_column(header, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(_METHOD, style="dim")


def write(folder: Path, environment: Environment, plan: Plan, results: RunResults, summary: Summary) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(_as_json(environment, plan, results, summary), indent=2) + "\n")
    (folder / "bench.md").write_text(_as_markdown(environment, plan, summary))


def _as_json(environment: Environment, plan: Plan, results: RunResults, summary: Summary) -> dict[str, Any]:
    return {
        "setting": asdict(environment),
        "plan": asdict(plan),
        "candidates": [
            {
                "name": candidate.result.candidate.name,
                "title": candidate.result.candidate.title,
                "floor": candidate.result.candidate.baseline,
                "bound": candidate.result.candidate.bound,
                "cpu_us": candidate.cpu_us,
                "ratio": candidate.ratio,
                "calls": candidate.calls,
                "errors": candidate.errors,
                "start_seconds": candidate.result.start_seconds,
                "idle_rss": candidate.result.idle_rss,
                "final_rss": candidate.result.final_rss,
                "trouble": candidate.problem,
            }
            for candidate in summary.candidates
        ],
        "lines": [asdict(line) for line in summary.lines],
        "cells": [asdict(cell) for cell in results.cells],
    }


def _as_markdown(environment: Environment, plan: Plan, summary: Summary) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in environment.packages.items())
    parts = [
        f"{environment.date} · {environment.cpu}, {environment.cores} cores, load {environment.load_before} before · "
        f"Python {environment.python} · {packages}",
        f"{plan.rounds} rounds of {plan.seconds:g} s at each concurrency; {environment.pinned}. {_METHOD}",
    ]
    for title, headers, rows in _tables(summary):
        ruler = ["---", *["---:"] * (len(headers) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (headers, ruler, *rows)]
        parts.append(f"**{title}**\n\n" + "\n".join(lines))
    problems = [f"- {problem}" for candidate in summary.candidates if (problem := candidate.problem)]
    if problems:
        parts.append("\n".join(problems))
    return "\n\n".join(parts) + "\n"


def _tables(summary: Summary) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    titles = {candidate.result.candidate.name: candidate.result.candidate.title for candidate in summary.candidates}
    return [
        ("Cost per call", _SUMMARY_COLUMNS, [_summary_row(candidate) for candidate in summary.candidates]),
        ("By concurrency", _DETAIL_COLUMNS, [_detail_row(titles[line.candidate], line) for line in summary.lines]),
    ]


def _summary_row(candidate: CandidateSummary) -> tuple[str, ...]:
    result = candidate.result
    if result.failure is not None:
        return (result.candidate.title, "failed", *["–"] * (len(_SUMMARY_COLUMNS) - 2))
    return (
        result.candidate.title,
        f"{candidate.cpu_us:.0f}",
        _multiple(candidate.ratio),
        f"{result.candidate.bound:g}" if result.candidate.bound else "–",
        f"{result.start_seconds:.2f}",
        f"{result.idle_rss / 1e6:.0f}",
        f"{result.final_rss / 1e6:.0f}",
        str(candidate.errors),
    )


def _detail_row(title: str, line: Line) -> tuple[str, ...]:
    return (
        title,
        str(line.concurrency),
        f"{line.cpu_us:.0f}",
        _multiple(line.ratio),
        f"{line.p50_us / 1e3:.2f}",
        f"{line.p99_us / 1e3:.2f}",
        f"{line.calls_per_second:.0f}",
        f"{line.driver_us:.0f}",
    )


def _multiple(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
