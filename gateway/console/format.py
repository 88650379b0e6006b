"""Formats durations, counts, timestamps and outcomes for the console pages."""

import time
from datetime import UTC, datetime
from typing import Final

from gateway.console.html import Html, h
from gateway.state.call_history import classify_outcome

OUTCOME_SYMBOLS: Final = {"ok": "●", "refused": "▲", "failed": "✕"}
"""Shown next to the colour, for users who cannot tell the colours apart."""
_EFFECTS: Final = {
    0: ("read-only", "ok"),
    1: ("idempotent write", "quiet"),
    2: ("write", "quiet"),
    3: ("destructive or open-world", "failed"),
}


def duration(microseconds: float) -> str:
    """A duration with its unit, joined by a no-break space."""
    if microseconds < 1000:
        return f"{microseconds:.0f}\u00a0µs"
    if microseconds < 1_000_000:
        milliseconds = microseconds / 1000
        return f"{milliseconds:.1f}\u00a0ms" if milliseconds < 10 else f"{milliseconds:.0f}\u00a0ms"
    return f"{microseconds / 1e6:.1f}\u00a0s"


def count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def percent(part: float, whole: float) -> str:
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.1f} %" if 0 < share < 10 else f"{share:.0f} %"


def timestamp(at: float, *, with_date: bool = False) -> Html:
    """A `<time>` element in UTC; console.js shows it in local time."""
    when = datetime.fromtimestamp(at, UTC)
    shown = when.strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")
    return h.time(f"{shown} UTC", datetime=when.isoformat(timespec="milliseconds"), data_day=with_date)


def ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def pill(text: str, kind: str, symbol: str = "") -> Html:
    return h.span(h.i(symbol, aria_hidden="true") if symbol else None, text, class_=f"pill {kind}")


def outcome(name: str) -> Html:
    kind = classify_outcome(name)
    return pill(name.replace("_", " "), kind, OUTCOME_SYMBOLS[kind])


def effect(level: int | None) -> Html | None:
    if level is None:
        return None
    text, kind = _EFFECTS.get(level, ("write", "quiet"))
    return pill(text, kind)


def principal_name(principal: str) -> str:
    """The principal without its tenant; pages with several tenants show the tenant in its own column."""
    return principal.partition("/")[2].removeprefix("user:") or principal
