"""The Overview page: traffic, outcomes, latency, backends, calls in progress and recent calls."""

from typing import Final

from gateway.console import charts
from gateway.console.components import call_table, card, error_count, table, tool_link
from gateway.console.format import ago, count, duration, percent, pill, plural, principal_name
from gateway.console.html import Child, Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.contract import Json
from gateway.state.call_history import MAX_RECORDS, CallFilter, Traffic

_PERIODS: Final = ((1, "1 min"), (15, "15 min"), (60, "1 h"), (1440, "24 h"))
_SLOTS: Final = 60
_STATE_STYLES: Final = {
    "up": ("ok", "●"),
    "unknown": ("quiet", "○"),
    "failing": ("refused", "▲"),
    "down": ("failed", "✕"),
}


async def overview(request: PageRequest) -> ConsolePage:
    minutes = int(request.number("minutes", 15, 1, 1440))
    traffic = await request.sources.calls.traffic(request.tenant, minutes * 60, _SLOTS)
    calls = await request.sources.calls.find(CallFilter(tenant=request.tenant, limit=10))
    backends = await request.sources.backends(request.caller)
    body = markup(
        h.h1("Overview"),
        _period_tabs(request, minutes),
        h.div(_metrics(traffic), class_="metrics", data_part="metrics"),
        h.div(
            card(
                "Traffic",
                charts.traffic_bars(traffic),
                _axis(minutes),
                _legend(),
                _truncation_note(traffic),
                id="traffic",
                live=True,
            ),
            card("Latency", charts.histogram(traffic.histogram), id="latency", live=True),
            class_="columns",
        ),
        h.div(
            card("Top tools", _tools(request, traffic), id="busy", live=True),
            card("Backends", _backends(request, backends), id="backends", live=True),
            class_="columns",
        ),
        _in_progress(request),
        card(
            "Recent calls",
            call_table(request, "Recent calls", calls, "No calls yet."),
            id="last",
            live=True,
            more=h.a("All calls", href=request.url("calls")),
        ),
    )
    return ConsolePage("Overview", body, "", live=True)


def _period_tabs(request: PageRequest, minutes: int) -> Html:
    links = (
        h.a(name, href=request.url(minutes=each), aria_current="true" if each == minutes else None)
        for each, name in _PERIODS
    )
    return h.nav(links, class_="tabs", aria_label="Period")


def _metrics(traffic: Traffic) -> list[Html]:
    ok, refused, failed = (sum(each) for each in (traffic.ok, traffic.refused, traffic.failed))
    totals = [sum(slot) for slot in zip(traffic.ok, traffic.refused, traffic.failed, strict=True)]
    minutes = traffic.width * len(totals) / 60
    total = ok + refused + failed
    median, p95 = traffic.percentile(0.5), traffic.percentile(0.95)
    return [
        _metric("Calls", count(total), f"{total / minutes:.1f} per minute", totals, "accent"),
        _metric("Failed", percent(failed, total), plural(failed, "call"), traffic.failed, "failed"),
        _metric("Refused", percent(refused, total), plural(refused, "call"), traffic.refused, "refused"),
        _metric("Median duration", duration(median), f"95th percentile {duration(p95)}", traffic.median_us, "ok"),
    ]


def _metric(name: str, value: str, detail: str, values: object, kind: str) -> Html:
    chart = charts.sparkline(list(values), f"{name} over time", kind)  # type: ignore[call-overload]
    return h.div(h.h2(name), h.p(value, class_="big"), h.p(detail, class_="dim"), chart, class_="card metric")


def _axis(minutes: int) -> Html:
    period = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
    return h.div(h.span(f"{period} ago"), h.span("now"), class_="axis", aria_hidden="true")


def _legend() -> Html:
    kinds = ("ok", "refused", "failed")
    return h.p((h.span(kind, class_=f"key {kind}") for kind in kinds), class_="legend", aria_hidden="true")


def _truncation_note(traffic: Traffic) -> Html | None:
    return h.p(f"Includes only the newest {count(MAX_RECORDS)} calls.", class_="dim") if traffic.cut else None


def _tools(request: PageRequest, traffic: Traffic) -> Html:
    busiest = traffic.tools[:6]
    peak = max((tool.calls for tool in busiest), default=0)
    rows: list[list[Child]] = [
        [
            tool_link(request, tool.target),
            charts.with_bar(count(tool.calls), tool.calls, peak),
            error_count(tool.bad),
            duration(tool.mean_us),
        ]
        for tool in busiest
    ]
    return table("Top tools", ("Tool", "Calls", "Errors", "Mean"), rows, "No tool calls in this period.")


def _backends(request: PageRequest, backends: list[Json]) -> Html:
    return h.ul(
        (
            h.li(
                h.a(each["namespace"], href=request.url("backends", each["namespace"]), class_="target"),
                backend_state(each),
                h.span(plural(each["tools"], "tool"), class_="dim"),
            )
            for each in backends
        ),
        class_="list",
    )


def backend_state(backend: Json) -> Html:
    """The state of a backend as a pill; for failing ones with its age."""
    kind, symbol = _STATE_STYLES[backend["state"]]
    text = backend["state"] if backend["state"] != "unknown" else "not contacted yet"
    if backend["state"] in ("failing", "down"):
        text = f"{text}, {ago(backend['since'])}"
    return pill(text, kind, symbol)


def _in_progress(request: PageRequest) -> Html:
    rows: list[list[Child]] = [
        [each["target"], f"{each['seconds']:.1f} s", principal_name(each["principal"]), h.code(each["correlation_id"])]
        for each in request.sources.calls_in_progress(request.tenant)[:10]
    ]
    columns = ("Target", "Duration", "Principal", "Correlation ID")
    # An empty part stays on the page, so that the next refresh can fill it.
    if not rows:
        return h.div(data_part="running")
    return h.div(card("In progress", table("Calls in progress", columns, rows, ""), id="running"), data_part="running")
