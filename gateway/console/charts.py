"""SVG charts of the console. Each chart has a text label for screen readers."""

from collections.abc import Sequence
from typing import Final

from gateway.console.format import count, duration
from gateway.console.html import Child, Html, h
from gateway.state.call_history import BUCKET_BOUNDS_US, Traffic

_HEIGHT: Final = 100.0


def traffic_bars(traffic: Traffic) -> Html:
    """A stacked bar for each time slot: ok at the bottom, then refused, then failed."""
    layers = (("ok", traffic.ok), ("refused", traffic.refused), ("failed", traffic.failed))
    peak = max((sum(slot) for slot in zip(*(values for _, values in layers), strict=True)), default=0) or 1
    bars: list[Html] = []
    for slot in range(len(traffic.ok)):
        top, segments = _HEIGHT, list[Html]()
        for name, values in layers:
            if values[slot]:
                height = max(values[slot] / peak * _HEIGHT, 1.5)
                top -= height
                segments.append(_rect(slot + 0.1, top, 0.8, height, name))
        bars.append(h.g(segments))
    label = (
        f"{count(traffic.calls)} calls: {count(sum(traffic.ok))} ok, "
        f"{count(sum(traffic.refused))} refused, {count(sum(traffic.failed))} failed; "
        f"maximum {count(peak)} in a bar"
    )
    return _svg(label, len(traffic.ok), _HEIGHT, bars, "chart")


def sparkline(values: Sequence[float], label: str, kind: str = "accent") -> Html:
    peak = max(values, default=0) or 1
    points = [(at, 28 - value / peak * 26) for at, value in enumerate(values)]
    line = " ".join(f"{x},{y:.1f}" for x, y in points)
    last = len(values) - 1
    shapes = (
        h.polygon(points=f"0,30 {line} {last},30", class_=f"area {kind}"),
        h.polyline(points=line, class_=f"stroke {kind}", vector_effect="non-scaling-stroke"),
    )
    return _svg(label, max(last, 1), 30, shapes, "spark")


def histogram(bars: Sequence[int]) -> Html:
    """Calls by duration."""
    peak, shapes = max(bars, default=0) or 1, list[Html]()
    for at, number in enumerate(bars):
        height = max(number / peak * _HEIGHT, 1.5) if number else 0.6
        low = duration(BUCKET_BOUNDS_US[at - 1]) if at else "0"
        interval = (
            f"{low} to {duration(BUCKET_BOUNDS_US[at])}"
            if at < len(BUCKET_BOUNDS_US)
            else f"over {duration(BUCKET_BOUNDS_US[-1])}"
        )
        title = h.title(f"{interval}: {count(number)}")
        shapes.append(h.g(title, _rect(at + 0.06, _HEIGHT - height, 0.88, height, "accent" if number else "none")))
    label = "; ".join(
        f"{count(number)} within {duration(BUCKET_BOUNDS_US[at])}"
        if at < len(BUCKET_BOUNDS_US)
        else f"{count(number)} longer"
        for at, number in enumerate(bars)
        if number
    )
    labels = h.div((h.span(duration(bound)) for bound in BUCKET_BOUNDS_US[1::3]), class_="axis", aria_hidden="true")
    return h.div(_svg(f"Calls by duration: {label or 'none'}", len(bars), _HEIGHT, shapes, "chart"), labels)


def with_bar(text: Child, part: float, whole: float, kind: str = "accent") -> Html:
    """A text with a horizontal bar below it; the bar shows `part` as a share of `whole`."""
    width = 100 * part / whole if whole else 0
    bar = h.svg(
        _rect(0, 0, max(width, 1 if part else 0), 1, kind),
        viewBox="0 0 100 1",
        preserveAspectRatio="none",
        class_="ratio-bar",
        aria_hidden="true",
    )
    return h.span(text, bar, class_="with-bar")


def timeline(segments: Sequence[tuple[float, float, str]]) -> Html:
    """One row of a waterfall. Each segment is (start, length, colour class), as fractions of the row."""
    shapes = [_rect(start * 1000, 0, max(length * 1000, 2), 1, kind) for start, length, kind in segments]
    return h.svg(shapes, viewBox="0 0 1000 1", preserveAspectRatio="none", class_="timeline", aria_hidden="true")


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Html:
    return h.rect(x=f"{x:.2f}", y=f"{y:.2f}", width=f"{width:.2f}", height=f"{height:.2f}", class_=kind)


def _svg(label: str, width: float, height: float, shapes: object, class_name: str) -> Html:
    return h.svg(
        shapes,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=class_name,
    )
