"""What would become of a call, and by which policies."""

import json
from typing import Any, Final, cast

from gateway.console.components import card, table
from gateway.console.format import effect, pill
from gateway.console.html import Child, Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.contract import Caller, Json
from gateway.contract.caller import EVERYDAY, SCOPES
from gateway.errors import Fault, Kind

_EVERYDAY: Final = " ".join(EVERYDAY)
_KINDS: Final = {
    "allow": ("allowed", "ok", "●"),
    "deny": ("denied", "failed", "✕"),
    "scope": ("lacks a scope", "refused", "▲"),
    "approval": ("needs approval", "refused", "▲"),
    "hidden": ("hidden", "failed", "✕"),
    "unknown tenant": ("unknown tenant", "failed", "✕"),
    "unknown tool": ("unknown tool", "failed", "✕"),
}
_MOST: Final = 64 * 1024


async def why(look: ConsoleQueries) -> ConsolePage:
    asked = look.query
    answer: Html | None = None
    if asked.get("subject") and asked.get("tool"):
        answer = card("The answer", _answer(look), id="answer")
    body = markup(
        h.h1("Why"),
        h.p("What would become of a call, by whom, and by which policies. Nothing is called.", class_="lead"),
        h.div(card("The question", _form(look), id="question"), answer, class_="two"),
    )
    return ConsolePage("Why", body, "why")


def _answer(look: ConsoleQueries) -> Html:
    try:
        caller = _caller(look)
        approved, own = look.query.get("approved") == "yes", look.tenant is not None
        found = look.sources.why(caller, look.query["tool"], _arguments(look), approved, own)
    except Fault as fault:
        return h.p(fault.message, class_="bad", role="alert")
    return explained(found)


def explained(found: Json) -> Html:
    """One answer of the policies."""
    word, kind, sign = _KINDS.get(found["outcome"], (found["outcome"], "refused", "▲"))
    rows: list[list[Child]] = [
        [h.code(note["id"]), note["effect"], note["reason"] or note["advice"]] for note in found["policies"]
    ]
    listed = table("Policies that decided", ("Policy", "Says", "Because"), rows, "") if rows else None
    context = json.dumps(found["context"], indent=2, ensure_ascii=False) if found["context"] else ""
    return markup(
        h.p(pill(word, kind, sign), " ", found["sentence"], class_="sentence"),
        h.p(h.code(found["tool"]), " ", effect(found["effect"])) if found["effect"] is not None else None,
        listed,
        h.details(h.summary("What policy saw"), h.pre(context, tabindex="0")) if context else None,
        h.p(f"Policies {found['version']}", class_="dim"),
    )


def _caller(look: ConsoleQueries) -> Caller:
    asked = look.query
    tenant = look.tenant or asked.get("of") or look.operator.tenant
    kind = "service" if asked.get("kind") == "service" else "user"
    groups, scopes = asked.get("groups", "").split(), asked.get("scopes", _EVERYDAY).split()
    return Caller(tenant, asked["subject"].strip()[:256], kind, frozenset(groups), frozenset(scopes))


def _arguments(look: ConsoleQueries) -> Json:
    given = look.query.get("arguments", "").strip()
    if not given:
        return {}
    try:
        found: Any = json.loads(given[:_MOST])
    except (ValueError, RecursionError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The arguments are not JSON.") from exc
    if not isinstance(found, dict):
        raise Fault(Kind.INVALID_INPUT, "The arguments must be a JSON object.")
    return cast("Json", found)


def _form(look: ConsoleQueries) -> Html:
    asked = look.query
    names = sorted({route.canonical for route in look.sources.tools(look.caller).values()})
    kind = asked.get("kind", "user")
    tenant: Html | None = None
    if look.tenant is None:
        now = asked.get("of") or look.operator.tenant
        options = [h.option(name, selected=name == now) for name in look.sources.tenants()]
        tenant = h.div(h.label("Tenant", for_="of"), h.select(options, id="of", name="of"))
    elif look.everywhere:
        tenant = h.input(type="hidden", name="tenant", value=look.tenant)
    return h.form(
        tenant,
        h.div(
            h.label("Who", for_="subject"),
            h.input(
                id="subject",
                name="subject",
                value=asked.get("subject", ""),
                required=True,
                maxlength=256,
                placeholder="alice",
            ),
        ),
        h.div(
            h.label("A person or a service", for_="kind"),
            h.select(
                (h.option(name, value=name, selected=name == kind) for name in ("user", "service")),
                id="kind",
                name="kind",
            ),
        ),
        h.div(
            h.label("Tool", for_="tool"),
            h.input(id="tool", name="tool", value=asked.get("tool", ""), required=True, list="tools", maxlength=256),
            h.datalist((h.option(value=name) for name in names), id="tools"),
        ),
        h.div(
            h.label("Groups, with spaces between", for_="groups"),
            h.input(id="groups", name="groups", value=asked.get("groups", "")),
        ),
        h.div(
            h.label("Scopes of the credential", for_="scopes"),
            h.input(id="scopes", name="scopes", value=asked.get("scopes", _EVERYDAY), list="known-scopes"),
            h.datalist((h.option(value=scope) for scope in sorted(SCOPES)), id="known-scopes"),
        ),
        h.div(
            h.label("Arguments, as JSON", for_="arguments"),
            h.textarea(asked.get("arguments", ""), id="arguments", name="arguments", rows=3, spellcheck="false"),
        ),
        h.div(
            h.label(
                h.input(type="checkbox", name="approved", value="yes", checked=asked.get("approved") == "yes"),
                " with approval",
                class_="check",
            )
        ),
        h.div(h.button("Ask", class_="go"), class_="act"),
        method="get",
        action=f"{look.prefix}/why",
        class_="stacked",
    )
