"""Metrics at one moment, as plain values: what is shown as text, sent as OTLP, or added to other workers' numbers."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from gateway.contract import Json

SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The conventions' buckets."""
FINE: Final = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0)
"""For the gateway's own stages."""

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the family's labels."""


class Histogram:
    """Counts by bucket; the last is for what lies above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None, total: float = 0.0) -> None:
        self.bounds = bounds
        self.counts = counts if counts is not None else [0] * (len(bounds) + 1)
        self.total = total

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __add__(self, other: "Histogram") -> "Histogram":
        counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, counts, self.total + other.total)


Value = float | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric with all its points. `name` is OpenTelemetry's; `shown` is Prometheus' for the same."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str = ""
    together: Literal["sum", "max"] = "sum"
    """What several workers' numbers make."""
    points: dict[Labels, Value] = field(default_factory=dict[Labels, Value])

    @property
    def shown(self) -> str:
        name = self.name.replace(".", "_")
        if self.unit in _UNITS and not name.endswith(_UNITS[self.unit]):
            name += f"_{_UNITS[self.unit]}"
        return f"{name}_total" if self.kind == "counter" else name

    def add(self, value: Value, *labels: tuple[str, str]) -> None:
        """Put a point, or add to the one that is there."""
        there = self.points.get(labels)
        self.points[labels] = value if there is None else _together(there, value, self.together)

    def as_json(self) -> Json:
        points: list[Any] = [
            [labels, [list(value.bounds), value.counts, value.total] if isinstance(value, Histogram) else value]
            for labels, value in self.points.items()
        ]
        about = {"name": self.name, "help": self.help, "kind": self.kind, "unit": self.unit, "together": self.together}
        return {**about, "points": points}


_UNITS: Final = {"s": "seconds", "By": "bytes"}


def read_family(data: Json) -> MetricFamily:
    """What `as_json` wrote."""
    about = {key: value for key, value in data.items() if key != "points"}
    family = MetricFamily(**about)
    for labels, value in cast("list[tuple[Any, Any]]", data["points"]):
        known: Any = value
        if isinstance(value, list):
            bounds, counts, total = cast("tuple[list[float], list[int], float]", value)
            known = Histogram(tuple(bounds), counts, total)
        family.points[tuple((name, text) for name, text in labels)] = known
    return family


def summed(several: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """Several workers' families as one's."""
    whole: dict[str, MetricFamily] = {}
    for families in several:
        for family in families:
            there = whole.get(family.name)
            if there is None:
                there = whole[family.name] = MetricFamily(
                    family.name, family.help, family.kind, family.unit, family.together
                )
            for labels, value in family.points.items():
                there.add(value, *labels)
    return list(whole.values())


def _together(ours: Value, theirs: Value, how: str) -> Value:
    if isinstance(ours, Histogram) and isinstance(theirs, Histogram):
        return ours + theirs
    assert not isinstance(ours, Histogram)
    assert not isinstance(theirs, Histogram)
    return ours + theirs if how == "sum" else max(ours, theirs)


# ---- Prometheus' text ----------------------------------------------------------------------------------------------


def as_text(families: Iterable[MetricFamily]) -> str:
    """The exposition format, version 0.0.4."""
    lines: list[str] = []
    for family in families:
        if not family.points:
            continue
        name = family.shown
        lines.append(f"# HELP {name} {family.help}")
        lines.append(f"# TYPE {name} {family.kind}")
        for labels, value in family.points.items():
            if isinstance(value, Histogram):
                lines += _histogram_lines(name, labels, value)
            else:
                lines.append(f"{name}{_braced(labels)} {_number(value)}")
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: Labels, value: Histogram) -> Iterable[str]:
    so_far = 0
    for bound, count in zip((*value.bounds, None), value.counts, strict=True):
        so_far += count
        limit = "+Inf" if bound is None else _number(bound)
        yield f"{name}_bucket{_braced((*labels, ('le', limit)))} {so_far}"
    yield f"{name}_sum{_braced(labels)} {_number(value.total)}"
    yield f"{name}_count{_braced(labels)} {so_far}"


def _braced(labels: Labels) -> str:
    shown = ",".join(f'{name.replace(".", "_")}="{_escaped(value)}"' for name, value in labels if value)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)
