"""Page elements that several console pages share."""

from collections.abc import Iterable, Mapping, Sequence

from gateway.console import charts
from gateway.console.format import count, duration, outcome, principal_name, timestamp
from gateway.console.html import Child, Html, Value, h
from gateway.console.page import PageRequest
from gateway.state.call_history import VisibleCall


def card(title: str, *body: Child, id: str = "", live: bool = False, more: Child = None) -> Html:
    """A titled section. On a live page, console.js refreshes the sections with `live`."""
    head = h.div(h.h2(title, id=f"{id}-title" if id else None), more, class_="head")
    return h.section(
        head,
        body,
        class_="card",
        id=id or None,
        data_part=id if live else None,
        aria_labelledby=f"{id}-title" if id else None,
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """A list of names and values; pairs without a value are omitted."""
    return h.dl(
        (h.div(h.dt(name), h.dd(value)) for name, value in pairs if value not in (None, "", ())), class_="facts"
    )


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Child]], empty: str, class_name: str = ""
) -> Html:
    """A table, or the text `empty` without rows. Each cell names its column: narrow screens show rows as blocks."""
    if not rows:
        return h.p(empty, class_="empty")
    body = (h.tr(h.td(cell, data_column=head) for head, cell in zip(columns, row, strict=True)) for row in rows)
    return h.div(
        h.table(
            h.caption(caption, class_="sr-only"),
            h.thead(h.tr(h.th(head, scope="col") for head in columns)),
            h.tbody(body),
            class_=class_name or None,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"{caption} (table)",
    )


def tool_link(request: PageRequest, id: str) -> Html:
    return h.a(id, href=request.url("tools", id), class_="target")


def error_count(number: int) -> Html:
    return h.span(count(number), class_="bad" if number else "dim")


def call_table(request: PageRequest, caption: str, calls: Sequence[VisibleCall], empty: str = "") -> Html:
    return table(caption, call_columns(request), call_rows(request, calls), empty, "calls")


def call_rows(request: PageRequest, calls: Sequence[VisibleCall]) -> list[list[Child]]:
    longest = max((call.duration_us for call in calls), default=0)
    return [
        [
            timestamp(call.at),
            outcome(call.outcome),
            h.a(call.target or call.method, href=request.url("calls", call.correlation_id), class_="target"),
            *((call.tenant,) if request.tenant is None else ()),
            principal_name(call.principal),
            charts.with_bar(duration(call.duration_us), call.duration_us, longest, call.outcome_class),
            h.code(call.correlation_id),
        ]
        for call in calls
    ]


def call_columns(request: PageRequest) -> list[str]:
    tenant = ("Tenant",) if request.tenant is None else ()
    return ["Finished", "Outcome", "Target", *tenant, "Principal", "Duration", "Correlation ID"]


def field(request: PageRequest, name: str, label: str, *extra: Child, default: str = "", **more: Value) -> Html:
    """A labelled input that shows the value of the query parameter `name`."""
    value = request.query.get(name, default)
    return h.div(h.label(label, for_=name), h.input(id=name, name=name, value=value, **more), extra)


def selector(name: str, label: str, options: Mapping[str, str], selected: str) -> Html:
    """A labelled selection; `options` maps values to texts."""
    shown = (h.option(text, value=value, selected=value == selected) for value, text in options.items())
    return h.div(h.label(label, for_=name), h.select(shown, id=name, name=name))


def hidden_tenant(request: PageRequest) -> Html | None:
    """Keeps the selected tenant when a form is submitted."""
    if not request.all_tenants or not request.tenant:
        return None
    return h.input(type="hidden", name="tenant", value=request.tenant)


def copyable(text: str, label: str) -> Html:
    """A text with a button that copies it."""
    return h.div(
        h.pre(h.code(text), tabindex="0", aria_label=label),
        h.button("Copy", type="button", class_="copy", data_copy=text, aria_label=f"Copy: {label}"),
        class_="copyable",
    )
