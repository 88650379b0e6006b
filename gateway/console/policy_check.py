"""The Policy check page: whether a call would be allowed, and which policies decide."""

import json
from typing import Any, Final, cast

from gateway.console.components import card, field, hidden_tenant, selector, table
from gateway.console.format import effect, pill
from gateway.console.html import Child, Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.contract import Caller, Json
from gateway.contract.caller import DEFAULT_SCOPES, SCOPES
from gateway.errors import Fault, Kind

_DEFAULT_SCOPES: Final = " ".join(DEFAULT_SCOPES)
_OUTCOMES: Final = {
    "allow": ("allowed", "ok", "●"),
    "deny": ("denied", "failed", "✕"),
    "scope": ("missing scope", "refused", "▲"),
    "approval": ("approval required", "refused", "▲"),
    "hidden": ("hidden", "failed", "✕"),
    "unknown tenant": ("unknown tenant", "failed", "✕"),
    "unknown tool": ("unknown tool", "failed", "✕"),
}
_MAX_ARGUMENTS_LENGTH: Final = 64 * 1024


async def policy_check(request: PageRequest) -> ConsolePage:
    query = request.query
    result: Html | None = None
    if query.get("subject") and query.get("tool"):
        result = card("Decision", _result(request), id="decision")
    body = markup(
        h.h1("Policy check"),
        h.p("Shows whether a call is allowed, and which policies decide. The tool is not called.", class_="lead"),
        h.div(card("Request", _form(request), id="request"), result, class_="columns"),
    )
    return ConsolePage("Policy check", body, "why")


def _result(request: PageRequest) -> Html:
    try:
        caller = _caller(request)
        approved, one_tenant = request.query.get("approved") == "yes", request.tenant is not None
        result = request.sources.check_policy(caller, request.query["tool"], _arguments(request), approved, one_tenant)
    except Fault as fault:
        return h.p(fault.message, class_="bad", role="alert")
    return explanation(result)


def explanation(result: Json) -> Html:
    """The result of a policy check: decision, deciding policies and evaluation context."""
    label, kind, symbol = _OUTCOMES.get(result["outcome"], (result["outcome"], "refused", "▲"))
    rows: list[list[Child]] = [
        [h.code(note["id"]), note["effect"], note["reason"] or note["advice"]] for note in result["policies"]
    ]
    listed = table("Deciding policies", ("Policy", "Effect", "Reason"), rows, "") if rows else None
    context = json.dumps(result["context"], indent=2, ensure_ascii=False) if result["context"] else ""
    return markup(
        h.p(pill(label, kind, symbol), " ", result["sentence"], class_="sentence"),
        h.p(h.code(result["tool"]), " ", effect(result["effect"])) if result["effect"] is not None else None,
        listed,
        h.details(h.summary("Evaluation context"), h.pre(context, tabindex="0")) if context else None,
        h.p(f"Policy version {result['version']}", class_="dim"),
    )


def _caller(request: PageRequest) -> Caller:
    query = request.query
    tenant = request.tenant or query.get("of") or request.operator.tenant
    kind = "service" if query.get("kind") == "service" else "user"
    groups, scopes = query.get("groups", "").split(), query.get("scopes", _DEFAULT_SCOPES).split()
    return Caller(tenant, query["subject"].strip()[:256], kind, frozenset(groups), frozenset(scopes))


def _arguments(request: PageRequest) -> Json:
    text = request.query.get("arguments", "").strip()
    if not text:
        return {}
    try:
        arguments: Any = json.loads(text[:_MAX_ARGUMENTS_LENGTH])
    except (ValueError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The arguments are not valid JSON. Enter a JSON object.") from exc
    if not isinstance(arguments, dict):
        raise Fault(Kind.INVALID_INPUT, "The arguments are not a JSON object. Enter a JSON object.")
    return cast("Json", arguments)


def _form(request: PageRequest) -> Html:
    query = request.query
    tenant = hidden_tenant(request)
    if request.tenant is None:
        tenant = selector(
            "of",
            "Tenant",
            {name: name for name in request.sources.tenants()},
            query.get("of") or request.operator.tenant,
        )
    return h.form(
        tenant,
        field(request, "subject", "Principal", required=True, maxlength=256, placeholder="alice"),
        selector("kind", "Principal type", {"user": "user", "service": "service"}, query.get("kind", "user")),
        field(
            request,
            "tool",
            "Tool",
            h.datalist((h.option(value=name) for name in request.tools()), id="tools"),
            required=True,
            list="tools",
            maxlength=256,
        ),
        field(request, "groups", "Groups (space-separated)"),
        field(
            request,
            "scopes",
            "Scopes (space-separated)",
            h.datalist((h.option(value=scope) for scope in sorted(SCOPES)), id="known-scopes"),
            default=_DEFAULT_SCOPES,
            list="known-scopes",
        ),
        h.div(
            h.label("Arguments (JSON)", for_="arguments"),
            h.textarea(query.get("arguments", ""), id="arguments", name="arguments", rows=3, spellcheck="false"),
        ),
        h.div(
            h.label(
                h.input(type="checkbox", name="approved", value="yes", checked=query.get("approved") == "yes"),
                " Approved",
                class_="check",
            )
        ),
        h.div(h.button("Check", class_="primary"), class_="actions"),
        action=f"{request.prefix}/why",
        class_="stacked",
    )
