"""The Backends page and the page of one backend: status, circuit breaker, tools and findings."""

from gateway.console.components import card, facts, table, tool_link
from gateway.console.format import ago, effect, pill, plural, timestamp
from gateway.console.html import Child, Html, h, markup
from gateway.console.overview import backend_state
from gateway.console.page import ConsolePage, PageRequest
from gateway.contract import Json, Route
from gateway.errors import Fault, Kind

_MAX_SUMMARY = 200
_BREAKERS = {
    "closed": ("closed", "ok", "●"),
    "half-open": ("half open", "refused", "▲"),
    "open": ("open", "failed", "✕"),
}
_KINDS = {
    "module": "in-process module",
    "http": "Streamable HTTP",
    "sse": "HTTP+SSE",
    "stdio": "stdio child process",
    "openapi": "HTTP API (OpenAPI)",
}


async def backends(request: PageRequest) -> ConsolePage:
    found = await request.sources.backends(request.caller)
    cards = h.div((_card(request, each) for each in found), class_="cards", data_part="backends")
    empty = None if found else h.p("No backends are available.", class_="empty")
    return ConsolePage("Backends", markup(h.h1("Backends"), cards, empty), "backends", live=True)


def _card(request: PageRequest, backend: Json) -> Html:
    name = backend["namespace"]
    listed = ", ".join(
        plural(backend[f"{each}s"], each) for each in ("tool", "resource", "prompt") if backend[f"{each}s"]
    )
    return h.article(
        h.h2(h.a(name, href=request.url("backends", name)), " ", backend_state(backend)),
        h.p(_KINDS[backend["kind"]], class_="dim"),
        facts(
            (
                ("Catalogue", listed or "empty"),
                ("Circuit breaker", pill(*_BREAKERS[backend["breaker"]]) if backend["kind"] != "module" else None),
                ("Protocol eras", ", ".join(backend["eras"])),
                ("In progress", f"{plural(backend['in_flight'], 'call')}, {backend['waiting']} queued"),
                ("Last error", _last_error(backend)),
            )
        ),
        _notices(backend),
        class_="card",
    )


def _last_error(backend: Json) -> Child:
    return f"{backend['last_error']}, {ago(backend['last_error_at'])}" if backend["last_error"] else None


def _notices(backend: Json) -> Html | None:
    """Findings that an operator should review."""
    notices: list[Html] = []
    if backend["degraded"]:
        notices.append(pill("list refresh failed; cached lists are served", "refused", "▲"))
    for key in ("quarantined", "suspicious", "changed"):
        if backend[key]:
            notices.append(pill(f"{len(backend[key])} {key}", "refused", "▲"))
    return h.p(notices, class_="notices") if notices else None


async def backend(request: PageRequest, name: str) -> ConsolePage:
    found = {each["namespace"]: each for each in await request.sources.backends(request.caller)}.get(name)
    if found is None:
        raise Fault(Kind.NOT_FOUND, "No backend with this name is available. See the Backends page.")
    rows: list[list[Child]] = [
        [tool_link(request, id), effect(route.effect), summary(route)]
        for id, route in request.tools().items()
        if route.namespace == name
    ]
    body = markup(
        h.p(h.a("Backends", href=request.url("backends")), " / ", name, class_="breadcrumb"),
        h.h1(name, " ", backend_state(found)),
        h.div(card("Status", _status_facts(found), id="health"), _review_items(found), class_="columns"),
        card("Tools", table("Tools", ("Tool", "Effect", "Description"), rows, "No tools."), id="tools"),
    )
    return ConsolePage(name, body, "backends")


def _status_facts(found: Json) -> Html:
    return facts(
        (
            ("Transport", _KINDS[found["kind"]]),
            ("Since", timestamp(found["since"], with_date=True)),
            ("Circuit breaker", pill(*_BREAKERS[found["breaker"]])),
            ("Tenants with an open breaker", str(found["open_tenant_breakers"])),
            ("Protocol eras", ", ".join(found["eras"]) or "unknown"),
            ("In progress", str(found["in_flight"])),
            ("Queued", str(found["waiting"])),
            ("Resources", str(found["resources"])),
            ("Prompts", str(found["prompts"])),
            ("Last error", _last_error(found)),
            ("Lists", "cached; the last refresh failed" if found["degraded"] else "current"),
        )
    )


def _review_items(found: Json) -> Html:
    rows: list[list[Child]] = [[h.code(name), "quarantined", reason] for name, reason in found["quarantined"].items()]
    rows += [[h.code(name), "suspicious", reason] for name, reason in found["suspicious"].items()]
    rows += [
        [h.code(each["tool"]), "changed", markup(", ".join(each["parts"]), " ", timestamp(each["at"], with_date=True))]
        for each in found["changed"]
    ]
    empty = "No items are quarantined or suspicious, and no definition has changed."
    return card("Needs review", table("Needs review", ("Item", "Finding", "Reason"), rows, empty), id="review")


def summary(route: Route) -> str:
    """The first line of the description, shortened at a word boundary."""
    lines = str(route.definition.get("description") or "").strip().splitlines()
    if not lines or len(lines[0]) <= _MAX_SUMMARY:
        return lines[0] if lines else ""
    return lines[0][:_MAX_SUMMARY].rpartition(" ")[0].rstrip(",;:. ") + " …"
