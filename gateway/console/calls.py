"""The Calls page: all recorded calls, with filters."""

from typing import Final

from gateway.console.components import call_table, card, field, hidden_tenant, selector
from gateway.console.html import Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.state.call_history import CallFilter

_PAGE_SIZE: Final = 50
_KINDS: Final = (
    "failed", "refused", "denied", "approval_required", "rate_limited", "invalid_input", "tool_error", "timeout",
    "unavailable", "ok",
)  # fmt: skip
_OUTCOMES: Final = {"": "any", "bad": "refused or failed"} | {kind: kind.replace("_", " ") for kind in _KINDS}


async def calls(request: PageRequest) -> ConsolePage:
    before = request.number("before", 0, 0, 1e12)
    criteria = CallFilter(
        tenant=request.tenant,
        id=request.query.get("id", "").strip(),
        outcome=request.query.get("outcome", ""),
        target=request.query.get("tool", "").strip(),
        principal=request.query.get("person", "").strip(),
        slower_us=int(request.number("slower", 0, 0, 1e9) * 1000),
        before=before,
        limit=_PAGE_SIZE + 1,
    )
    found = await request.sources.calls.find(criteria)
    shown = found[:_PAGE_SIZE]
    filters = {key: request.query.get(key, "") for key in ("id", "outcome", "tool", "person", "slower")}
    older = (
        h.a("Older", href=request.url("calls", **filters, before=shown[-1].at), rel="next")
        if len(found) > _PAGE_SIZE
        else None
    )
    newest = h.a("Newest", href=request.url("calls", **filters)) if before else None
    listed = call_table(request, "Calls, newest first", shown, "No calls match these filters.")
    body = markup(
        h.h1("Calls"),
        _filters(request),
        card(
            "Newest first",
            listed,
            h.p(newest, older, class_="pagination"),
            id="found",
            live=not before,
        ),
    )
    return ConsolePage("Calls", body, "calls", live=not before)


def _filters(request: PageRequest) -> Html:
    return h.form(
        hidden_tenant(request),
        field(request, "id", "Correlation or trace ID", type="search", maxlength=256),
        field(request, "tool", "Tool", type="search", maxlength=256),
        field(request, "person", "Principal", type="search", maxlength=256),
        selector("outcome", "Outcome", _OUTCOMES, request.query.get("outcome", "")),
        field(request, "slower", "Slower than (ms)", type="number", min=0, maxlength=256),
        h.div(
            h.button("Search", class_="primary"),
            h.a("Clear", href=request.url("calls"), class_="quiet"),
            class_="actions",
        ),
        action=f"{request.prefix}/calls",
        class_="filters",
        role="search",
    )
