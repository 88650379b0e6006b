"""How times, sizes and outcomes are written."""

import time
from datetime import UTC, datetime
from typing import Final

from gateway.console.html import Html, h
from gateway.state.call_history import class_of

SIGNS: Final = {"ok": "●", "refused": "▲", "failed": "✕"}
"""Beside the colour, for whoever does not see it."""
_EFFECTS: Final = {
    0: ("reads", "ok"),
    1: ("writes, can be repeated", "quiet"),
    2: ("writes", "quiet"),
    3: ("destroys or leaves the organisation", "failed"),
}


def took(microseconds: float) -> str:
    """Never broken between the number and its unit."""
    if microseconds < 1000:
        return f"{microseconds:.0f}\u00a0µs"
    if microseconds < 1_000_000:
        milliseconds = microseconds / 1000
        return f"{milliseconds:.1f}\u00a0ms" if milliseconds < 10 else f"{milliseconds:.0f}\u00a0ms"
    return f"{microseconds / 1e6:.1f}\u00a0s"


def count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def many(number: int, one: str) -> str:
    return f"{count(number)} {one}" if number == 1 else f"{count(number)} {one}s"


def percent(part: float, whole: float) -> str:
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.1f} %" if 0 < share < 10 else f"{share:.0f} %"


def moment(at: float, *, day: bool = False) -> Html:
    """In UTC; the browser writes it in its own time."""
    when = datetime.fromtimestamp(at, UTC)
    shown = when.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    return h.time(f"{shown} UTC", datetime=when.isoformat(timespec="milliseconds"), data_day=day)


def ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def pill(text: str, kind: str, sign: str = "") -> Html:
    return h.span(h.i(sign, aria_hidden="true") if sign else None, text, class_=f"pill {kind}")


def outcome(word: str) -> Html:
    kind = class_of(word)
    return pill(word.replace("_", " "), kind, SIGNS[kind])


def effect(level: int | None) -> Html | None:
    if level is None:
        return None
    text, kind = _EFFECTS.get(level, ("writes", "quiet"))
    return pill(text, kind)


def who(principal: str) -> str:
    """Without the tenant, which stands beside it where there are several."""
    return principal.partition("/")[2].removeprefix("user:") or principal
