"""The Tools page and the page of one tool: definition, effect, schemas and usage."""

import json
from typing import Any, Final, cast

from gateway.console import charts
from gateway.console.backends import summary
from gateway.console.components import (
    call_table,
    card,
    error_count,
    facts,
    field,
    hidden_tenant,
    table,
    tool_link,
)
from gateway.console.format import count, duration, effect, plural
from gateway.console.html import Child, Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.contract import Json, Route
from gateway.errors import Fault, Kind
from gateway.state.call_history import CallFilter, ToolTraffic

_DAY: Final = 86400.0
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


async def tools(request: PageRequest) -> ConsolePage:
    search_text = request.query.get("q", "").strip().lower()
    usage = await _usage_by_tool(request)
    found = [each for each in request.tools().values() if search_text in f"{each.canonical} {summary(each)}".lower()]
    peak = max((use.calls for use in usage.values()), default=0)
    rows: list[list[Child]] = [_row(request, route, usage.get(route.canonical), peak) for route in found]
    columns = ("Tool", "Effect", "Description", "Calls (24 h)", "Errors", "Mean duration")
    search = h.form(
        hidden_tenant(request),
        field(request, "q", "Name or description", type="search"),
        h.div(h.button("Search", class_="primary"), class_="actions"),
        action=f"{request.prefix}/tools",
        class_="filters",
        role="search",
    )
    listed = card(plural(len(found), "tool"), table("Tools", columns, rows, "No tools match.", "tools"), id="found")
    return ConsolePage("Tools", markup(h.h1("Tools"), search, listed), "tools")


def _row(request: PageRequest, route: Route, use: ToolTraffic | None, peak: int) -> list[Child]:
    calls = use.calls if use else 0
    return [
        tool_link(request, route.canonical),
        effect(route.effect),
        h.span(summary(route), class_="dim"),
        charts.with_bar(count(calls), calls, peak),
        error_count(use.bad if use else 0),
        duration(use.mean_us) if use else h.span("–", class_="dim"),
    ]


async def _usage_by_tool(request: PageRequest) -> dict[str, ToolTraffic]:
    traffic = await request.sources.calls.traffic(request.tenant, _DAY, 24)
    return {tool.target: tool for tool in traffic.tools}


async def tool(request: PageRequest, id: str) -> ConsolePage:
    route = request.tools().get(id)
    if route is None:
        raise Fault(Kind.NOT_FOUND, "No tool with this name is served. Search on the Tools page.")
    use = (await _usage_by_tool(request)).get(id)
    calls = [
        each
        for each in await request.sources.calls.find(CallFilter(tenant=request.tenant, target=id, limit=10))
        if each.target == id
    ]
    definition = route.definition
    body = markup(
        h.p(h.a("Tools", href=request.url("tools")), " / ", id, class_="breadcrumb"),
        h.h1(str(definition.get("title") or id), " ", effect(route.effect)),
        h.p(str(definition.get("description") or "No description.").strip(), class_="description"),
        h.div(
            card("Details", _facts(request, route), id="facts"),
            card("Usage (24 h)", _usage_facts(use), id="usage"),
            class_="columns",
        ),
        card("Input", *_schema(definition.get("inputSchema")), id="input"),
        card("Output", *_schema(definition["outputSchema"]), id="output") if definition.get("outputSchema") else None,
        card(
            "Recent calls",
            call_table(request, "Recent calls", calls, "No calls yet."),
            id="last",
            more=h.a("All calls", href=request.url("calls", tool=id)),
        ),
    )
    return ConsolePage(id, body, "tools")


def _facts(request: PageRequest, route: Route) -> Html:
    hints: Json = route.definition.get("annotations") or {}
    annotations = ", ".join(
        f"{name.removesuffix('Hint')}: {str(hints[name]).lower()}" for name in _HINTS if name in hints
    )
    return facts(
        (
            ("Canonical ID", h.code(route.canonical)),
            ("Exposed name", h.code(route.exposed)),
            ("Backend", h.a(route.namespace, href=request.url("backends", route.namespace))),
            ("Upstream name", h.code(route.name)),
            ("Effect", f"{route.effect}"),
            ("Annotations", annotations),
            ("Timeout", f"{route.timeout:g} s"),
            ("Access", h.a("Policy check", href=request.url("why", tool=route.canonical))),
        )
    )


def _usage_facts(use: ToolTraffic | None) -> Html:
    if use is None:
        return h.p("No calls.", class_="empty")
    return facts(
        (
            ("Calls", count(use.calls)),
            ("Errors", charts.with_bar(error_count(use.bad), use.bad, use.calls, "failed")),
            ("Mean duration", duration(use.mean_us)),
            ("Max duration", duration(use.longest_us)),
        )
    )


def _schema(value: Any) -> list[Html]:
    """The properties of a schema as a table, and its complete JSON."""
    schema = cast("Json", value) if isinstance(value, dict) else {}
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    required_names = cast("list[Any]", required) if isinstance(required, list) else []
    rows: list[list[Child]] = []
    if isinstance(properties, dict):
        for name, property_value in cast("Json", properties).items():
            definition = cast("Json", property_value) if isinstance(property_value, dict) else {}
            rows.append(
                [
                    h.code(name),
                    _type_name(definition),
                    "yes" if name in required_names else h.span("no", class_="dim"),
                    h.span(str(definition.get("description") or ""), class_="dim"),
                ]
            )
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    return [
        table("Properties", ("Name", "Type", "Required", "Description"), rows, "No named properties."),
        h.details(h.summary("JSON Schema"), h.pre(text, tabindex="0")),
    ]


def _type_name(definition: Json) -> str:
    if isinstance(values := definition.get("enum"), list):
        return " | ".join(map(str, cast("list[Any]", values)))[:120]
    name: Any = definition.get("type") or ("one of several" if {"anyOf", "oneOf"} & definition.keys() else "any")
    return " | ".join(map(str, cast("list[Any]", name))) if isinstance(name, list) else str(name)
