"""Pieces that several pages share."""

from collections.abc import Iterable, Sequence

from gateway.console import charts
from gateway.console.format import moment, outcome, took, who
from gateway.console.html import Child, Html, h
from gateway.console.queries import ConsoleQueries
from gateway.state.call_history import VisibleCall


def card(title: str, *body: Child, id: str = "", part: str = "", wide: bool = False, more: Child = None) -> Html:
    """`part` names what is read again on a live page."""
    head = h.div(h.h2(title, id=f"{id}-title" if id else None), more, class_="head")
    return h.section(
        head,
        body,
        class_="card wide" if wide else "card",
        id=id or None,
        data_part=part or None,
        aria_labelledby=f"{id}-title" if id else None,
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names and values; what has no value is left out."""
    return h.dl(
        (h.div(h.dt(name), h.dd(value)) for name, value in pairs if value not in (None, "", ())), class_="facts"
    )


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], empty: str, kind: str = "") -> Html:
    """On a narrow screen each row is a block of its own, so every cell knows the head of its column."""
    if not rows:
        return h.p(empty, class_="empty")
    body = (h.tr(h.td(cell, data_head=head) for head, cell in zip(heads, row, strict=True)) for row in rows)
    return h.div(
        h.table(
            h.caption(caption, class_="unseen"),
            h.thead(h.tr(h.th(head, scope="col") for head in heads)),
            h.tbody(body),
            class_=kind or None,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"{caption}, as a table",
    )


def call_rows(look: ConsoleQueries, calls: Sequence[VisibleCall]) -> list[list[Child]]:
    longest = max((call.duration_us for call in calls), default=0)
    return [
        [
            moment(call.at),
            outcome(call.outcome),
            h.a(call.target or call.method, href=look.to("calls", call.correlation_id), class_="what"),
            *((call.tenant,) if look.tenant is None else ()),
            who(call.principal),
            h.span(took(call.duration_us), charts.share(call.duration_us, longest, call.kind), class_="took"),
            h.code(call.correlation_id),
        ]
        for call in calls
    ]


def call_heads(look: ConsoleQueries) -> list[str]:
    return ["When", "Outcome", "What", *(("Tenant",) if look.tenant is None else ()), "Who", "Took", "Correlation id"]


def copyable(text: str, label: str) -> Html:
    """A line with a button that copies it; without scripts it is selected by a click."""
    return h.div(
        h.pre(h.code(text), tabindex="0", aria_label=label),
        h.button("Copy", type="button", class_="copy", data_copy=text, aria_label=f"Copy: {label}"),
        class_="line",
    )
