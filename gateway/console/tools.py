"""The tools: what each does, takes and may do, and how it is used."""

import json
from typing import Any, Final, cast

from gateway.console import charts
from gateway.console.backends import first_line
from gateway.console.components import call_heads, call_rows, card, facts, table
from gateway.console.format import count, effect, many, took
from gateway.console.html import Child, Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.contract import Json, Route
from gateway.errors import Fault, Kind
from gateway.state.call_history import CallFilter, ToolTraffic

_DAY: Final = 86400.0
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


async def tools(look: ConsoleQueries) -> ConsolePage:
    asked = look.query.get("q", "").strip().lower()
    used = await _used(look)
    every = {route.canonical: route for route in look.sources.tools(look.caller).values()}
    found = [each for _, each in sorted(every.items()) if asked in f"{each.canonical} {first_line(each)}".lower()]
    most = max((use.calls for use in used.values()), default=0)
    rows: list[list[Child]] = [_row(look, route, used.get(route.canonical), most) for route in found]
    heads = ("Tool", "Effect", "What it does", "Calls in a day", "Not ok", "Mean")
    search = h.form(
        h.input(type="hidden", name="tenant", value=look.tenant) if look.everywhere and look.tenant else None,
        h.div(
            h.label("Name or words", for_="q"), h.input(id="q", name="q", type="search", value=look.query.get("q", ""))
        ),
        h.div(h.button("Find", class_="go"), class_="act"),
        method="get",
        action=f"{look.prefix}/tools",
        class_="filters",
        role="search",
    )
    listed = card(many(len(found), "tool"), table("Tools", heads, rows, "No tool is like that.", "tools"), id="found")
    return ConsolePage("Tools", markup(h.h1("Tools"), search, listed), "tools")


def _row(look: ConsoleQueries, route: Route, use: ToolTraffic | None, most: int) -> list[Child]:
    calls = use.calls if use else 0
    bad = use.bad if use else 0
    return [
        h.a(route.canonical, href=look.to("tools", route.canonical), class_="what"),
        effect(route.effect),
        h.span(first_line(route), class_="dim"),
        h.span(count(calls), charts.share(calls, most), class_="took"),
        h.span(count(bad), class_="bad" if bad else "dim"),
        took(use.mean_us) if use else h.span("–", class_="dim"),
    ]


async def _used(look: ConsoleQueries) -> dict[str, ToolTraffic]:
    traffic = await look.sources.calls.traffic(look.tenant, _DAY, 24)
    return {tool.target: tool for tool in traffic.tools}


async def tool(look: ConsoleQueries, id: str) -> ConsolePage:
    route = next((each for each in look.sources.tools(look.caller).values() if each.canonical == id), None)
    if route is None:
        raise Fault(Kind.NOT_FOUND, "No tool of that name is served.")
    use = (await _used(look)).get(id)
    calls = [
        each
        for each in await look.sources.calls.find(CallFilter(tenant=look.tenant, target=id, limit=10))
        if each.target == id
    ]
    definition = route.definition
    body = markup(
        h.p(h.a("Tools", href=look.to("tools")), " / ", id, class_="path"),
        h.h1(str(definition.get("title") or id), " ", effect(route.effect)),
        h.p(str(definition.get("description") or "It says nothing of itself.").strip(), class_="said"),
        h.div(
            card("What it is", _facts(look, route), id="facts"),
            card("How it was used in a day", _use(use), id="use"),
            class_="two",
        ),
        card("What it takes", *_schema(definition.get("inputSchema")), id="takes"),
        card("What it gives", *_schema(definition["outputSchema"]), id="gives")
        if definition.get("outputSchema")
        else None,
        card(
            "Its last calls",
            table("Its last calls", call_heads(look), call_rows(look, calls), "It was not called yet.", "calls"),
            id="last",
            more=h.a("All of them", href=look.to("calls", tool=id)),
        ),
    )
    return ConsolePage(id, body, "tools")


def _facts(look: ConsoleQueries, route: Route) -> Html:
    hints: Json = route.definition.get("annotations") or {}
    told = ", ".join(f"{name.removesuffix('Hint')}: {str(hints[name]).lower()}" for name in _HINTS if name in hints)
    return facts(
        (
            ("Canonical id", h.code(route.canonical)),
            ("Shown as", h.code(route.exposed)),
            ("Backend", h.a(route.namespace, href=look.to("backends", route.namespace))),
            ("Its own name", h.code(route.name)),
            ("Effect", f"{route.effect}"),
            ("Says of itself", told),
            ("Has", f"{route.timeout:g} s"),
            ("Who may", h.a("Ask", href=look.to("why", tool=route.canonical))),
        )
    )


def _use(use: ToolTraffic | None) -> Html:
    if use is None:
        return h.p("It was not called.", class_="empty")
    ends = h.span(
        h.span(count(use.bad), class_="bad" if use.bad else "dim"),
        charts.share(use.bad, use.calls, "failed"),
        class_="took",
    )
    return facts(
        (
            ("Calls", count(use.calls)),
            ("Not ok", ends),
            ("Mean", took(use.mean_us)),
            ("Longest", took(use.longest_us)),
        )
    )


def _schema(given: Any) -> list[Html]:
    """The properties as a table, and all of it as it is."""
    schema = cast("Json", given) if isinstance(given, dict) else {}
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    needed = cast("list[Any]", required) if isinstance(required, list) else []
    rows: list[list[Child]] = []
    if isinstance(properties, dict):
        for name, about in cast("Json", properties).items():
            said = cast("Json", about) if isinstance(about, dict) else {}
            rows.append(
                [
                    h.code(name),
                    _kind(said),
                    "yes" if name in needed else h.span("no", class_="dim"),
                    h.span(str(said.get("description") or ""), class_="dim"),
                ]
            )
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    return [
        table("Properties", ("Name", "Kind", "Needed", "What for"), rows, "Nothing by name."),
        h.details(h.summary("The schema"), h.pre(text, tabindex="0")),
    ]


def _kind(said: Json) -> str:
    if isinstance(values := said.get("enum"), list):
        return " | ".join(map(str, cast("list[Any]", values)))[:120]
    kind: Any = said.get("type") or ("one of several" if {"anyOf", "oneOf"} & said.keys() else "anything")
    return " | ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)
