"""What a run leaves: tables in the terminal, `bench.json` with every cell, and `bench.md` for a README."""

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
from bench.run import Findings, Plan
from bench.summary import BUSY, Line, Summary, Verdict

_PACKAGES = ("gatehouse", "mcp", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")

_SHORT = ("candidate", "CPU µs", "× floor", "bound", "start s", "idle MB", "end MB", "errors")
_LONG = ("candidate", "at once", "CPU µs", "× floor", "p50 ms", "p99 ms", "calls/s", "driver")

_HOW = (
    f"CPU is user and system time of the server's process tree per call; the first table takes it at {BUSY[0]} and "
    f"{BUSY[1]} calls at once. Start is from the process to its first answered call; memory is RSS; driver is the "
    "CPU of the load driver per call, in µs. Candidates take "
    "turns, figures are medians over rounds, and each ratio is taken inside its round."
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and when a run took place."""

    date: str
    cpu: str
    cores: int
    pinned: str
    python: str
    packages: dict[str, str]
    load_before: float

    @classmethod
    def of_now(cls, cores: Cores) -> "Setting":
        pinned = f"server on core {cores.server}, load driver on core {cores.driver}"
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            cpu=_cpu_model(),
            cores=os.cpu_count() or 1,
            pinned=f"{pinned} (shared: latencies mean little)" if cores.shared else pinned,
            python=platform.python_version(),
            packages={name: version(name) for name in _PACKAGES},
            load_before=round(os.getloadavg()[0], 2),
        )


def show(console: Console, summary: Summary) -> None:
    for title, heads, rows in _tables(summary):
        table = Table(title=title, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
        table.add_column(heads[0], no_wrap=True)
        for head in heads[1:]:
            table.add_column(head, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(_HOW, style="dim")


def write(folder: Path, setting: Setting, plan: Plan, findings: Findings, summary: Summary) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(_as_json(setting, plan, findings, summary), indent=2) + "\n")
    (folder / "bench.md").write_text(_as_markdown(setting, plan, summary))


def _as_json(setting: Setting, plan: Plan, findings: Findings, summary: Summary) -> dict[str, Any]:
    return {
        "setting": asdict(setting),
        "plan": asdict(plan),
        "candidates": [
            {
                "name": verdict.standing.candidate.name,
                "title": verdict.standing.candidate.title,
                "floor": verdict.standing.candidate.floor,
                "bound": verdict.standing.candidate.bound,
                "cpu_us": verdict.cpu_us,
                "ratio": verdict.ratio,
                "calls": verdict.calls,
                "errors": verdict.errors,
                "start_seconds": verdict.standing.start_seconds,
                "idle_rss": verdict.standing.idle_rss,
                "final_rss": verdict.standing.final_rss,
                "trouble": verdict.trouble,
            }
            for verdict in summary.verdicts
        ],
        "lines": [asdict(line) for line in summary.lines],
        "cells": [asdict(cell) for cell in findings.cells],
    }


def _as_markdown(setting: Setting, plan: Plan, summary: Summary) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in setting.packages.items())
    parts = [
        f"{setting.date} · {setting.cpu}, {setting.cores} cores, load {setting.load_before} before · "
        f"Python {setting.python} · {packages}",
        f"{plan.rounds} rounds of {plan.seconds:g} s at each concurrency; {setting.pinned}. {_HOW}",
    ]
    for title, heads, rows in _tables(summary):
        ruler = ["---", *["---:"] * (len(heads) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (heads, ruler, *rows)]
        parts.append(f"**{title}**\n\n" + "\n".join(lines))
    troubles = [f"- {trouble}" for verdict in summary.verdicts if (trouble := verdict.trouble)]
    if troubles:
        parts.append("\n".join(troubles))
    return "\n\n".join(parts) + "\n"


def _tables(summary: Summary) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    titles = {verdict.standing.candidate.name: verdict.standing.candidate.title for verdict in summary.verdicts}
    return [
        ("What a call costs", _SHORT, [_short_row(verdict) for verdict in summary.verdicts]),
        ("By concurrency", _LONG, [_long_row(titles[line.candidate], line) for line in summary.lines]),
    ]


def _short_row(verdict: Verdict) -> tuple[str, ...]:
    standing = verdict.standing
    if standing.failure is not None:
        return (standing.candidate.title, "failed", *["–"] * (len(_SHORT) - 2))
    return (
        standing.candidate.title,
        f"{verdict.cpu_us:.0f}",
        _multiple(verdict.ratio),
        f"{standing.candidate.bound:g}" if standing.candidate.bound else "–",
        f"{standing.start_seconds:.2f}",
        f"{standing.idle_rss / 1e6:.0f}",
        f"{standing.final_rss / 1e6:.0f}",
        str(verdict.errors),
    )


def _long_row(title: str, line: Line) -> tuple[str, ...]:
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
