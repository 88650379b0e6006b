"""All calls, with filters."""

from typing import Final

from gateway.console.components import call_heads, call_rows, card, table
from gateway.console.html import Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.state.call_history import CallFilter

_PAGE: Final = 50
_OUTCOMES: Final = (
    ("", "any"),
    ("bad", "not ok"),
    ("failed", "failed"),
    ("refused", "refused"),
    ("denied", "denied by policy"),
    ("approval_required", "approval required"),
    ("rate_limited", "rate limited"),
    ("invalid_input", "invalid input"),
    ("tool_error", "tool error"),
    ("timeout", "timeout"),
    ("unavailable", "unavailable"),
    ("ok", "went well"),
)


async def calls(look: ConsoleQueries) -> ConsolePage:
    before = look.number("before", 0, 0, 1e12)
    wanted = CallFilter(
        tenant=look.tenant,
        id=look.query.get("id", "").strip(),
        outcome=look.query.get("outcome", ""),
        target=look.query.get("tool", "").strip(),
        principal=look.query.get("person", "").strip(),
        slower_us=int(look.number("slower", 0, 0, 1e9) * 1000),
        before=before,
        limit=_PAGE + 1,
    )
    found = await look.sources.calls.find(wanted)
    shown = found[:_PAGE]
    asked = {key: look.query.get(key, "") for key in ("id", "outcome", "tool", "person", "slower")}
    older = (
        h.a("Older", href=look.to("calls", **asked, before=shown[-1].at), rel="next") if len(found) > _PAGE else None
    )
    newest = h.a("Newest", href=look.to("calls", **asked)) if before else None
    rows = call_rows(look, shown)
    listed = table("Calls, the newest first", call_heads(look), rows, "No call is like that.", "calls")
    body = markup(
        h.h1("Calls"),
        _filters(look),
        card(
            "The newest first", listed, h.p(newest, older, class_="pages"), id="found", part="" if before else "found"
        ),
    )
    return ConsolePage("Calls", body, "calls", live=not before)


def _filters(look: ConsoleQueries) -> Html:
    now = look.query.get("outcome", "")
    tenant = h.input(type="hidden", name="tenant", value=look.tenant) if look.everywhere and look.tenant else None
    return h.form(
        tenant,
        _field(look, "id", "Correlation or trace id", "search"),
        _field(look, "tool", "Tool", "search"),
        _field(look, "person", "Person", "search"),
        h.div(
            h.label("Outcome", for_="outcome"),
            h.select(
                (h.option(name, value=key, selected=key == now) for key, name in _OUTCOMES),
                id="outcome",
                name="outcome",
            ),
        ),
        _field(look, "slower", "Slower than, ms", "number"),
        h.div(h.button("Find", class_="go"), h.a("Clear", href=look.to("calls"), class_="quiet"), class_="act"),
        method="get",
        action=f"{look.prefix}/calls",
        class_="filters",
        role="search",
    )


def _field(look: ConsoleQueries, name: str, label: str, kind: str) -> Html:
    value = look.query.get(name, "")
    given = h.input(id=name, name=name, type=kind, value=value, maxlength=256, min=0 if kind == "number" else None)
    return h.div(h.label(label, for_=name), given)
