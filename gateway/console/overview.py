"""The first page: how much is called, how it ends, how long it takes, and what is going on."""

from typing import Final

from gateway.console import charts
from gateway.console.components import call_heads, call_rows, card, table
from gateway.console.format import ago, count, many, percent, pill, took, who
from gateway.console.html import Child, Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.contract import Json
from gateway.state.call_history import MOST, CallFilter, Traffic

_SPANS: Final = ((1, "1 min"), (15, "15 min"), (60, "1 h"), (1440, "24 h"))
_SLOTS: Final = 60
_STATES: Final = {
    "up": ("ok", "●"),
    "unknown": ("quiet", "○"),
    "failing": ("refused", "▲"),
    "down": ("failed", "✕"),
}


async def overview(look: ConsoleQueries) -> ConsolePage:
    minutes = int(look.number("minutes", 15, 1, 1440))
    traffic = await look.sources.calls.traffic(look.tenant, minutes * 60, _SLOTS)
    calls = await look.sources.calls.find(CallFilter(tenant=look.tenant, limit=10))
    backends = await look.sources.backends(look.caller)
    body = markup(
        h.h1("Overview"),
        _spans(look, minutes),
        h.div(_numbers(traffic), class_="numbers", data_part="numbers"),
        h.div(
            card(
                "Traffic",
                charts.traffic_bars(traffic),
                _axis(minutes),
                _legend(),
                _cut(traffic),
                id="traffic",
                part="traffic",
            ),
            card("How long calls take", charts.histogram(traffic.histogram), id="latency", part="latency"),
            class_="two",
        ),
        h.div(
            card("Busiest tools", _tools(look, traffic), id="busy", part="busy"),
            card("Backends", _backends(look, backends), id="backends", part="backends"),
            class_="two",
        ),
        _under_way(look),
        card(
            "Last calls",
            table("The last calls", call_heads(look), call_rows(look, calls), "Nothing was called yet.", "calls"),
            id="last",
            part="last",
            more=h.a("All calls", href=look.to("calls")),
        ),
    )
    return ConsolePage("Overview", body, "", live=True)


def _spans(look: ConsoleQueries, minutes: int) -> Html:
    links = (
        h.a(name, href=look.to(minutes=each), aria_current="true" if each == minutes else None) for each, name in _SPANS
    )
    return h.nav(links, class_="tabs", aria_label="How far to look back")


def _numbers(traffic: Traffic) -> list[Html]:
    ok, refused, failed = (sum(each) for each in (traffic.ok, traffic.refused, traffic.failed))
    every = [sum(slot) for slot in zip(traffic.ok, traffic.refused, traffic.failed, strict=True)]
    minutes = traffic.width * len(every) / 60
    total = ok + refused + failed
    median, high = traffic.percentile(0.5), traffic.percentile(0.95)
    return [
        _number("Calls", count(total), f"{total / minutes:.1f} a minute", every, "line"),
        _number("Failed", percent(failed, total), many(failed, "call"), traffic.failed, "failed"),
        _number("Refused", percent(refused, total), many(refused, "call"), traffic.refused, "refused"),
        _number("Median time", took(median), f"95 % within {took(high)}", traffic.median_us, "ok"),
    ]


def _number(name: str, value: str, more: str, values: object, kind: str) -> Html:
    drawn = charts.sparkline(list(values), f"{name} over time", kind)  # type: ignore[call-overload]
    return h.div(h.h2(name), h.p(value, class_="big"), h.p(more, class_="dim"), drawn, class_="card number")


def _axis(minutes: int) -> Html:
    ago = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
    return h.div(h.span(f"{ago} ago"), h.span("now"), class_="axis", aria_hidden="true")


def _legend() -> Html:
    names = (("ok", "went well"), ("refused", "refused"), ("failed", "failed"))
    return h.p((h.span(name, class_=f"key {kind}") for kind, name in names), class_="legend", aria_hidden="true")


def _cut(traffic: Traffic) -> Html | None:
    return h.p(f"Of the newest {count(MOST)} calls only.", class_="dim") if traffic.cut else None


def _tools(look: ConsoleQueries, traffic: Traffic) -> Html:
    busiest = traffic.tools[:6]
    most = max((tool.calls for tool in busiest), default=0)
    rows: list[list[Child]] = [
        [
            h.a(tool.target, href=look.to("tools", tool.target), class_="what"),
            h.span(count(tool.calls), charts.share(tool.calls, most), class_="took"),
            h.span(count(tool.bad), class_="bad" if tool.bad else "dim"),
            took(tool.mean_us),
        ]
        for tool in busiest
    ]
    return table("The busiest tools", ("Tool", "Calls", "Not ok", "Mean"), rows, "No tool was called in this time.")


def _backends(look: ConsoleQueries, backends: list[Json]) -> Html:
    return h.ul(
        (
            h.li(
                h.a(each["namespace"], href=look.to("backends", each["namespace"]), class_="what"),
                state(each),
                h.span(many(each["tools"], "tool"), class_="dim"),
            )
            for each in backends
        ),
        class_="list",
    )


def state(backend: Json) -> Html:
    """How it is, with how long it has been so."""
    kind, sign = _STATES[backend["state"]]
    text = backend["state"] if backend["state"] != "unknown" else "not asked yet"
    if backend["state"] in ("failing", "down"):
        text = f"{text}, {ago(backend['since'])}"
    return pill(text, kind, sign)


def _under_way(look: ConsoleQueries) -> Html:
    rows: list[list[Child]] = [
        [each["target"], f"{each['seconds']:.1f} s", who(each["principal"]), h.code(each["correlation_id"])]
        for each in look.sources.under_way(look.tenant)[:10]
    ]
    heads = ("What", "For", "Who", "Correlation id")
    # An empty part stays on the page, so that the next look can fill it.
    if not rows:
        return h.div(data_part="running")
    return h.div(card("Under way", table("Calls under way", heads, rows, ""), id="running"), data_part="running")
