"""Metric values at one moment: exposed as Prometheus text, exported as OTLP, or added up across workers."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from gateway.contract import Json

DURATION_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bucket bounds in seconds that the OpenTelemetry conventions recommend."""
STAGE_BUCKETS: Final = (0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0)
"""Bucket bounds in seconds for the gateway's own stages."""

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs, in the order of the family's labels."""


class Histogram:
    """Counts per bucket. The last bucket holds values above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None, total: float = 0.0) -> None:
        self.bounds = bounds
        self.counts = counts if counts is not None else [0] * (len(bounds) + 1)
        self.total = total

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __add__(self, other: "Histogram") -> "Histogram":
        counts = [first + second for first, second in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, counts, self.total + other.total)


Value = float | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric with all its points. `name` is the OpenTelemetry name."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str = ""
    aggregation: Literal["sum", "max"] = "sum"
    """How values of several workers are combined."""
    points: dict[Labels, Value] = field(default_factory=dict[Labels, Value])

    @property
    def prometheus_name(self) -> str:
        """The metric's name in the Prometheus text format."""
        name = self.name.replace(".", "_")
        if self.unit in _UNITS and not name.endswith(_UNITS[self.unit]):
            name += f"_{_UNITS[self.unit]}"
        return f"{name}_total" if self.kind == "counter" else name

    def add(self, value: Value, *labels: tuple[str, str]) -> None:
        """Set a point, or combine the value with the existing point."""
        existing = self.points.get(labels)
        self.points[labels] = value if existing is None else _combine(existing, value, self.aggregation)

    def without_label(self, name: str) -> "MetricFamily":
        """The family with the points combined that differ in this label only."""
        combined = replace(self, points={})
        for labels, value in self.points.items():
            combined.add(value, *(label for label in labels if label[0] != name))
        return combined

    def to_json(self) -> Json:
        points: list[Any] = [
            [labels, [list(value.bounds), value.counts, value.total] if isinstance(value, Histogram) else value]
            for labels, value in self.points.items()
        ]
        metadata = {
            "name": self.name,
            "help": self.help,
            "kind": self.kind,
            "unit": self.unit,
            "together": self.aggregation,
        }
        return {**metadata, "points": points}


_UNITS: Final = {"s": "seconds", "By": "bytes"}


def family_from_json(data: Json) -> MetricFamily:
    """Decode the result of `MetricFamily.to_json`."""
    family = MetricFamily(data["name"], data["help"], data["kind"], data["unit"], data["together"])
    for labels, value in cast("list[tuple[Any, Any]]", data["points"]):
        parsed: Any = value
        if isinstance(value, list):
            bounds, counts, total = cast("tuple[list[float], list[int], float]", value)
            parsed = Histogram(tuple(bounds), counts, total)
        family.points[tuple((name, text) for name, text in labels)] = parsed
    return family


def sum_families(several: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """Combine the families of several workers."""
    families_by_name: dict[str, MetricFamily] = {}
    for families in several:
        for family in families:
            existing = families_by_name.get(family.name)
            if existing is None:
                existing = families_by_name[family.name] = MetricFamily(
                    family.name, family.help, family.kind, family.unit, family.aggregation
                )
            for labels, value in family.points.items():
                existing.add(value, *labels)
    return list(families_by_name.values())


def _combine(first: Value, second: Value, aggregation: str) -> Value:
    if isinstance(first, Histogram) and isinstance(second, Histogram):
        return first + second
    assert not isinstance(first, Histogram)
    assert not isinstance(second, Histogram)
    return first + second if aggregation == "sum" else max(first, second)


# ---- Prometheus text format ------------------------------------------------------------------------------------------


def to_prometheus_text(families: Iterable[MetricFamily]) -> str:
    """Format the families in the Prometheus exposition format, version 0.0.4."""
    lines: list[str] = []
    for family in families:
        if not family.points:
            continue
        name = family.prometheus_name
        lines.append(f"# HELP {name} {family.help}")
        lines.append(f"# TYPE {name} {family.kind}")
        for labels, value in family.points.items():
            if isinstance(value, Histogram):
                lines += _histogram_lines(name, labels, value)
            else:
                lines.append(f"{name}{_format_labels(labels)} {_format_number(value)}")
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: Labels, value: Histogram) -> Iterable[str]:
    cumulative = 0
    for bound, count in zip((*value.bounds, None), value.counts, strict=True):
        cumulative += count
        limit = "+Inf" if bound is None else _format_number(bound)
        yield f"{name}_bucket{_format_labels((*labels, ('le', limit)))} {cumulative}"
    yield f"{name}_sum{_format_labels(labels)} {_format_number(value.total)}"
    yield f"{name}_count{_format_labels(labels)} {cumulative}"


def _format_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name.replace(".", "_")}="{_escape(value)}"' for name, value in labels if value)
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _format_number(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)
