"""Spans as a waterfall, and the gateway's own time stage by stage."""

import json
from collections.abc import Sequence
from typing import Final

from gateway.console import pictures
from gateway.console.html import Child, Html, h, markup
from gateway.console.parts import table
from gateway.console.words import many, percent, took
from gateway.telemetry.store import Kept, nested

_KINDS: Final = {"server": "request", "client": "remote server", "internal": "made by a module"}
_MOST_DEEP: Final = 12
_TONES: Final = 6


def waterfall(spans: Sequence[Kept]) -> Html:
    """Each span below its parent, as a bar of where it began and how long it was."""
    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    whole = max(1, last - first)
    rows = (_row(span, depth, first, whole) for span, depth in nested(spans))
    heads = ("Span", "Begins after", "Takes", "Picture")
    return h.table(
        h.caption(f"{many(len(spans), 'span')} in {took(whole / 1000)}", class_="dim"),
        h.thead(h.tr(h.th(head, scope="col") for head in heads), class_="unseen"),
        h.tbody(rows),
        class_="waterfall",
    )


def _row(span: Kept, depth: int, first: int, whole: int) -> Html:
    begins, long = (span.started - first) / whole, (span.ended - span.started) / whole
    kind = "failed" if span.error is not None else "line" if span.kind == "client" else "ok"
    pieces = [(begins, long, kind)]
    if (queued := float(span.attributes.get("gatehouse.queued") or 0)) > 0:
        pieces.insert(0, (max(0.0, begins - queued * 1e9 / whole), queued * 1e9 / whole, "none"))
    name = h.div(
        h.span(_kind(span), class_="kind"),
        h.strong(span.name),
        h.span(", ".join(f"{name} {value}" for name, value in span.said), class_="dim") if span.said else None,
        h.span(span.error, class_="bad") if span.error else None,
        class_=f"deep d{min(depth, _MOST_DEEP)}",
    )
    told = h.details(h.summary("All that is told of it"), _attributes(span))
    return h.tr(
        h.td(name, told),
        h.td(took((span.started - first) / 1000), class_="num after", data_head="after"),
        h.td(took((span.ended - span.started) / 1000), class_="num"),
        h.td(pictures.strip(pieces), class_="bar"),
    )


def _kind(span: Kept) -> str:
    return "a module's work" if span.is_work else _KINDS.get(span.kind, span.kind)


def _attributes(span: Kept) -> Html:
    shown = {**span.attributes, "span id": span.span_id, "parent": span.parent_id or "none"}
    return h.dl(
        (
            h.div(h.dt(key), h.dd(value if isinstance(value, str) else json.dumps(value)))
            for key, value in shown.items()
        ),
        class_="attributes",
    )


def stages(own: Kept | None) -> Html | None:
    """The gateway's own time."""
    if own is None:
        return None
    prefix = "gatehouse.stage."
    times = {key.removeprefix(prefix): float(value) for key, value in own.attributes.items() if key.startswith(prefix)}
    whole = sum(times.values())
    if not whole:
        return None
    begins, pieces, rows = 0.0, list[tuple[float, float, str]](), list[list[Child]]()
    for at, (name, seconds) in enumerate(times.items()):
        tone = f"tone t{at % _TONES}"
        pieces.append((begins / whole, seconds / whole, tone))
        begins += seconds
        if seconds >= 1e-6:
            share = h.span(percent(seconds, whole), pictures.share(seconds, whole), class_="took")
            rows.append([h.span(name, class_=f"key {tone}"), took(seconds * 1e6), share])
    return markup(
        h.h3("Stage by stage"),
        pictures.strip(pieces),
        table("Time in each stage", ("Stage", "Time", "Share"), rows, "", "stages"),
    )
