"""Small drawings: each with a sentence for whoever cannot see it, and no text inside that could be stretched."""

from collections.abc import Sequence
from typing import Final

from gateway.console.format import count, took
from gateway.console.html import Html, h
from gateway.state.call_history import BOUNDS, Traffic

_HEIGHT: Final = 100.0


def traffic_bars(traffic: Traffic) -> Html:
    """A bar for each slot: what went well at the bottom, what was refused and what failed on it."""
    layers = (("ok", traffic.ok), ("refused", traffic.refused), ("failed", traffic.failed))
    most = max((sum(slot) for slot in zip(*(values for _, values in layers), strict=True)), default=0) or 1
    bars: list[Html] = []
    for slot in range(len(traffic.ok)):
        top, pieces = _HEIGHT, list[Html]()
        for name, values in layers:
            if values[slot]:
                tall = max(values[slot] / most * _HEIGHT, 1.5)
                top -= tall
                pieces.append(_rect(slot + 0.1, top, 0.8, tall, name))
        bars.append(h.g(pieces))
    said = (
        f"{count(traffic.calls)} calls: {count(sum(traffic.ok))} went well, "
        f"{count(sum(traffic.refused))} were refused, {count(sum(traffic.failed))} failed; "
        f"at most {count(most)} in a bar"
    )
    return _svg(said, len(traffic.ok), _HEIGHT, bars, "chart")


def sparkline(values: Sequence[float], said: str, kind: str = "line") -> Html:
    most = max(values, default=0) or 1
    points = [(at, 28 - value / most * 26) for at, value in enumerate(values)]
    line = " ".join(f"{x},{y:.1f}" for x, y in points)
    last = len(values) - 1
    drawn = (
        h.polygon(points=f"0,30 {line} {last},30", class_=f"area {kind}"),
        h.polyline(points=line, class_=f"stroke {kind}", vector_effect="non-scaling-stroke"),
    )
    return _svg(said, max(last, 1), 30, drawn, "spark")


def histogram(bars: Sequence[int]) -> Html:
    """Calls by how long they took."""
    most, shown = max(bars, default=0) or 1, list[Html]()
    for at, number in enumerate(bars):
        tall = max(number / most * _HEIGHT, 1.5) if number else 0.6
        low = took(BOUNDS[at - 1]) if at else "0"
        named = f"{low} to {took(BOUNDS[at])}" if at < len(BOUNDS) else f"over {took(BOUNDS[-1])}"
        title = h.title(f"{named}: {count(number)}")
        shown.append(h.g(title, _rect(at + 0.06, _HEIGHT - tall, 0.88, tall, "line" if number else "none")))
    said = "; ".join(
        f"{count(number)} within {took(BOUNDS[at])}" if at < len(BOUNDS) else f"{count(number)} longer"
        for at, number in enumerate(bars)
        if number
    )
    labels = h.div((h.span(took(bound)) for bound in BOUNDS[1::3]), class_="axis", aria_hidden="true")
    return h.div(_svg(f"Calls by duration: {said or 'none'}", len(bars), _HEIGHT, shown, "chart"), labels)


def share(part: float, whole: float, kind: str = "line") -> Html:
    """A bar beside a number that says the same."""
    wide = 100 * part / whole if whole else 0
    return h.svg(
        _rect(0, 0, max(wide, 1 if part else 0), 1, kind),
        viewBox="0 0 100 1",
        preserveAspectRatio="none",
        class_="share",
        aria_hidden="true",
    )


def strip(pieces: Sequence[tuple[float, float, str]]) -> Html:
    """One line of a waterfall: pieces by where they begin and how long they are, in parts of the whole."""
    drawn = [_rect(begins * 1000, 0, max(long * 1000, 2), 1, kind) for begins, long, kind in pieces]
    return h.svg(drawn, viewBox="0 0 1000 1", preserveAspectRatio="none", class_="strip", aria_hidden="true")


def _rect(x: float, y: float, wide: float, tall: float, kind: str) -> Html:
    return h.rect(x=f"{x:.2f}", y=f"{y:.2f}", width=f"{wide:.2f}", height=f"{tall:.2f}", class_=kind)


def _svg(said: str, wide: float, tall: float, drawn: object, kind: str) -> Html:
    return h.svg(
        drawn, viewBox=f"0 0 {wide} {tall}", preserveAspectRatio="none", role="img", aria_label=said, class_=kind
    )
