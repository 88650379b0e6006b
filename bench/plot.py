"""The picture of a run: CPU per call by candidate, and latency by concurrency."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import Setting
from bench.summary import Summary, Verdict

Axes = Any  # matplotlib leaves its keyword arguments untyped

_COLOURS = ("#8a8a8a", "#c58b2a", "#1f5fa8", "#3f9b6c", "#8b4a9e", "#b5473c")


def draw(path: Path, setting: Setting, summary: Summary) -> None:
    mpl.use("Agg")
    measured = [verdict for verdict in summary.verdicts if verdict.standing.failure is None]
    if not measured:
        return
    colours = {v.standing.candidate.name: _COLOURS[i % len(_COLOURS)] for i, v in enumerate(measured)}
    figure: Any = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_cpu(left, measured, colours)
    _draw_latency(right, summary, measured, colours)
    figure.suptitle(f"{setting.cpu}, {setting.cores} cores · Python {setting.python} · {setting.date}", fontsize=9)
    figure.savefig(path, dpi=130)


def _draw_cpu(axes: Axes, measured: list[Verdict], colours: dict[str, str]) -> None:
    names = [verdict.standing.candidate.title for verdict in measured]
    costs = [verdict.cpu_us for verdict in measured]
    bars = axes.barh(names, costs, color=[colours[v.standing.candidate.name] for v in measured])
    labels = [
        f" {verdict.cpu_us:.0f} µs" + (f" · {verdict.ratio:.2f} ×" if verdict.ratio is not None else "")
        for verdict in measured
    ]
    axes.bar_label(bars, labels, fontsize=9)
    axes.set_xlim(0, max(costs) * 1.35 or 1)
    axes.invert_yaxis()
    axes.set_title("CPU per call (16 and 64 at once), × its floor", fontsize=10)
    axes.set_xlabel("µs")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_latency(axes: Axes, summary: Summary, measured: list[Verdict], colours: dict[str, str]) -> None:
    for verdict in measured:
        candidate = verdict.standing.candidate
        lines = [line for line in summary.lines if line.candidate == candidate.name]
        steps = [str(line.concurrency) for line in lines]
        colour = colours[candidate.name]
        axes.plot(steps, [line.p50_us / 1e3 for line in lines], "o-", color=colour, label=candidate.title)
        axes.plot(steps, [line.p99_us / 1e3 for line in lines], "^--", color=colour, alpha=0.6)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_plain)
    axes.set_title("Latency by concurrency, p50 solid, p99 dashed (log scale)", fontsize=10)
    axes.set_xlabel("calls at once, each on a connection of its own")
    axes.set_ylabel("ms")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(value: float, _: object) -> str:
    return f"{value:g}"
