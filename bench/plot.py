"""Plots a run: CPU per call by candidate, and latency by concurrency."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import Environment
from bench.summary import CandidateSummary, Summary

Axes = Any  # matplotlib leaves its keyword arguments untyped

_COLOURS = ("#8a8a8a", "#c58b2a", "#1f5fa8", "#3f9b6c", "#8b4a9e", "#b5473c")


def draw(path: Path, environment: Environment, summary: Summary) -> None:
    mpl.use("Agg")
    measured = [candidate for candidate in summary.candidates if candidate.result.failure is None]
    if not measured:
        return
    colours = {v.result.candidate.name: _COLOURS[i % len(_COLOURS)] for i, v in enumerate(measured)}
    figure: Any = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_cpu(left, measured, colours)
    _draw_latency(right, summary, measured, colours)
    figure.suptitle(
        f"{environment.cpu}, {environment.cores} cores · Python {environment.python} · {environment.date}", fontsize=9
    )
    figure.savefig(path, dpi=130)


def _draw_cpu(axes: Axes, measured: list[CandidateSummary], colours: dict[str, str]) -> None:
    names = [candidate.result.candidate.title for candidate in measured]
    costs = [candidate.cpu_us for candidate in measured]
    bars = axes.barh(names, costs, color=[colours[v.result.candidate.name] for v in measured])
    labels = [
        f" {candidate.cpu_us:.0f} µs" + (f" · {candidate.ratio:.2f} ×" if candidate.ratio is not None else "")
        for candidate in measured
    ]
    axes.bar_label(bars, labels, fontsize=9)
    axes.set_xlim(0, max(costs) * 1.35 or 1)
    axes.invert_yaxis()
    axes.set_title("CPU per call (concurrency 16 and 64), × baseline", fontsize=10)
    axes.set_xlabel("µs")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_latency(axes: Axes, summary: Summary, measured: list[CandidateSummary], colours: dict[str, str]) -> None:
    for candidate in measured:
        candidate = candidate.result.candidate
        lines = [line for line in summary.lines if line.candidate == candidate.name]
        steps = [str(line.concurrency) for line in lines]
        colour = colours[candidate.name]
        axes.plot(steps, [line.p50_us / 1e3 for line in lines], "o-", color=colour, label=candidate.title)
        axes.plot(steps, [line.p99_us / 1e3 for line in lines], "^--", color=colour, alpha=0.6)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_plain)
    axes.set_title("Latency by concurrency, p50 solid, p99 dashed (log scale)", fontsize=10)
    axes.set_xlabel("concurrent calls, one connection each")
    axes.set_ylabel("ms")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(value: float, _: object) -> str:
    return f"{value:g}"
