"""The backends: how each is, and what it lists."""

from gateway.console.components import card, facts, table
from gateway.console.format import ago, effect, many, moment, pill
from gateway.console.html import Child, Html, h, markup
from gateway.console.overview import state
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.contract import Json, Route
from gateway.errors import Fault, Kind

_LONG = 200
_BREAKERS = {
    "closed": ("closed", "ok", "●"),
    "half-open": ("half open", "refused", "▲"),
    "open": ("open", "failed", "✕"),
}
_KINDS = {
    "module": "module in this process",
    "http": "streamable HTTP",
    "sse": "HTTP with SSE",
    "stdio": "child process",
}


async def backends(look: ConsoleQueries) -> ConsolePage:
    found = await look.sources.backends(look.caller)
    cards = h.div((_card(look, each) for each in found), class_="cards", data_part="backends")
    empty = None if found else h.p("No backend is served.", class_="empty")
    return ConsolePage("Backends", markup(h.h1("Backends"), cards, empty), "backends", live=True)


def _card(look: ConsoleQueries, backend: Json) -> Html:
    name = backend["namespace"]
    listed = ", ".join(
        many(backend[f"{each}s"], each) for each in ("tool", "resource", "prompt") if backend[f"{each}s"]
    )
    return h.article(
        h.h2(h.a(name, href=look.to("backends", name)), " ", state(backend)),
        h.p(_KINDS[backend["kind"]], class_="dim"),
        facts(
            (
                ("Lists", listed or "nothing"),
                ("Breaker", pill(*_BREAKERS[backend["breaker"]]) if backend["kind"] != "module" else None),
                ("Eras", ", ".join(backend["eras"])),
                ("Under way", f"{many(backend['in_flight'], 'call')}, {backend['waiting']} waiting"),
                ("Last error", _last_error(backend)),
            )
        ),
        _notices(backend),
        class_="card",
    )


def _last_error(backend: Json) -> Child:
    return f"{backend['last_error']}, {ago(backend['last_error_at'])}" if backend["last_error"] else None


def _notices(backend: Json) -> Html | None:
    """What somebody should look at."""
    said: list[Html] = []
    if backend["degraded"]:
        said.append(pill("lists could not be read; the last good ones are served", "refused", "▲"))
    for key, text in (("quarantined", "not served"), ("suspicious", "sound like an order"), ("changed", "changed")):
        if backend[key]:
            said.append(pill(f"{len(backend[key])} {text}", "refused", "▲"))
    return h.p(said, class_="notices") if said else None


async def backend(look: ConsoleQueries, name: str) -> ConsolePage:
    found = {each["namespace"]: each for each in await look.sources.backends(look.caller)}.get(name)
    if found is None:
        raise Fault(Kind.NOT_FOUND, "No backend of that name is served.")
    tools = sorted(
        {
            route.canonical: route for route in look.sources.tools(look.caller).values() if route.namespace == name
        }.items()
    )
    rows: list[list[Child]] = [
        [h.a(id, href=look.to("tools", id), class_="what"), effect(route.effect), first_line(route)]
        for id, route in tools
    ]
    body = markup(
        h.p(h.a("Backends", href=look.to("backends")), " / ", name, class_="path"),
        h.h1(name, " ", state(found)),
        h.div(card("How it is", _health(found), id="health"), _trouble(found), class_="two"),
        card("Tools", table("Its tools", ("Tool", "Effect", "What it does"), rows, "It lists no tools."), id="tools"),
    )
    return ConsolePage(name, body, "backends")


def _health(found: Json) -> Html:
    return facts(
        (
            ("Kind", _KINDS[found["kind"]]),
            ("So since", moment(found["since"], day=True)),
            ("Breaker", pill(*_BREAKERS[found["breaker"]])),
            ("Eras", ", ".join(found["eras"]) or "not known yet"),
            ("Under way", str(found["in_flight"])),
            ("Waiting", str(found["waiting"])),
            ("Resources", str(found["resources"])),
            ("Prompts", str(found["prompts"])),
            ("Last error", _last_error(found)),
            ("Lists", "of before: they could not be read" if found["degraded"] else "read"),
        )
    )


def _trouble(found: Json) -> Html:
    rows: list[list[Child]] = [[h.code(name), "not served", why] for name, why in found["quarantined"].items()]
    rows += [[h.code(name), "sounds like an order", why] for name, why in found["suspicious"].items()]
    rows += [
        [h.code(each["tool"]), "changed", markup(", ".join(each["parts"]), " ", moment(each["at"], day=True))]
        for each in found["changed"]
    ]
    nothing = "Nothing is kept back, and no definition has changed."
    return card("What to look at", table("What to look at", ("Item", "What", "Why"), rows, nothing), id="trouble")


def first_line(route: Route) -> str:
    """Of its description, whole words of it."""
    said = str(route.definition.get("description") or "").strip().splitlines()
    if not said or len(said[0]) <= _LONG:
        return said[0] if said else ""
    return said[0][:_LONG].rpartition(" ")[0].rstrip(",;:. ") + " …"
