"""The Approvals pages: the queue of held calls, one held call with its arguments, decisions, and grants."""

from collections.abc import Mapping
from typing import Final

from gateway.approvals.review import HeldCall
from gateway.console.components import card, facts, table
from gateway.console.format import effect, pill, principal_name, timestamp
from gateway.console.html import Child, Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.errors import Fault, Kind
from gateway.state.approval_rows import GrantRow

_STATES: Final = {
    "waiting": ("waiting", "refused", "▲"),
    "approved": ("approved", "ok", "●"),
    "used": ("ran", "ok", "●"),
    "denied": ("denied", "failed", "✕"),
    "expired": ("expired", "quiet", ""),
    "void": ("void", "quiet", ""),
}
_DURATIONS: Final = {"once": "This call, once", "hour": "This tool for this caller, for an hour"}


async def approvals(request: PageRequest) -> ConsolePage:
    """The queue, the decided calls and the active grants of the operator's tenant."""
    review, viewer = request.sources.approvals, request.operator
    held = await review.list(viewer)
    grants = await review.grants(viewer, is_approver=request.sources.is_approver(viewer))
    waiting = [each for each in held if each.state == "waiting"]
    decided = [each for each in held if each.state != "waiting"][:50]
    body = markup(
        h.h1("Approvals"),
        h.p("Calls that policies hold until members of a group approve them.", class_="lead"),
        card(
            "Waiting",
            _held_table(request, "Waiting calls", waiting, "No call waits for approval."),
            id="waiting",
            live=True,
        ),
        card(
            "Decided",
            _held_table(request, "Decided calls", decided, "No call was decided yet."),
            id="decided",
            live=True,
        ),
        card("Grants", _grant_table(request, grants), id="grants"),
    )
    return ConsolePage("Approvals", body, "approvals", live=True)


async def approval(request: PageRequest, id: str) -> ConsolePage:
    """One held call. Opening the page is recorded as seen."""
    held = await request.sources.approvals.show(request.operator, id)
    row, shown = held.row, held.arguments
    assert shown is not None
    arguments = h.pre(h.code(shown.text), tabindex="0", aria_label="Arguments", class_="wrap")
    note = None if shown.complete else h.p("Some arguments are hidden from you.", class_="bad", role="note")
    body = markup(
        h.h1(row.tool, " ", effect(row.effect)),
        h.p(_state(held), " ", row.reason, class_="sentence"),
        card("Arguments", note, arguments, id="arguments"),
        h.div(
            card(
                "Call",
                facts(
                    (
                        ("Caller", principal_name(row.principal)),
                        ("Tool", h.code(row.tool)),
                        ("Approvers", held.requirement.describe()),
                        ("Policies", [h.code(each, " ") for each in row.policies.split(",")]),
                        ("Asked", timestamp(row.created_at, with_date=True)),
                        ("Expires", timestamp(row.expires_at, with_date=True)),
                        ("Correlation ID", h.code(row.correlation_id)),
                    )
                ),
                id="call",
            ),
            card("Decision", _decisions(held), _form(request, held), id="decision"),
            class_="columns",
        ),
        h.p(h.a("All approvals", href=request.url("approvals"))),
    )
    return ConsolePage(f"Approval of {row.tool}", body, "approvals")


async def decide(request: PageRequest, id: str, form: Mapping[str, str]) -> str:
    """Apply a submitted decision; return the page to go to. Raises `Fault`."""
    review, reason = request.sources.approvals, form.get("reason", "")
    match form.get("decision"):
        case "approve":
            duration = form.get("duration", "once")
            if duration not in ("once", "hour", "session"):
                raise Fault(Kind.INVALID_INPUT, "Unknown duration. Open the page again.")
            await review.approve(request.operator, id, reason, duration)
        case "deny":
            await review.deny(request.operator, id, reason)
        case _:
            raise Fault(Kind.INVALID_INPUT, "The form has no decision. Open the page again.")
    return request.url("approvals", id)


async def revoke(request: PageRequest, id: str, form: Mapping[str, str]) -> str:
    """Revoke a grant; return the page to go to. Raises `Fault`."""
    viewer = request.operator
    await request.sources.approvals.revoke(viewer, id, is_approver=request.sources.is_approver(viewer))
    return request.url("approvals")


def _held_table(request: PageRequest, caption: str, held: list[HeldCall], empty: str) -> Html:
    rows: list[list[Child]] = [
        [
            timestamp(each.row.created_at, with_date=True),
            _state(each),
            h.a(each.row.tool, href=request.url("approvals", each.row.id), class_="target"),
            principal_name(each.row.principal),
            each.requirement.describe(),
            timestamp(each.row.expires_at, with_date=True),
        ]
        for each in held
    ]
    return table(caption, ("Asked", "Status", "Tool", "Caller", "Approvers", "Expires"), rows, empty, "calls")


def _grant_table(request: PageRequest, grants: list[GrantRow]) -> Html:
    rows: list[list[Child]] = [
        [
            h.code(each.tool),
            principal_name(each.principal),
            "session" if each.session else "an hour",
            principal_name(each.approver),
            timestamp(each.ends_at, with_date=True),
            h.form(
                h.input(type="hidden", name="form_token", value=request.form_token),
                h.button("Revoke", class_="quiet", aria_label=f"Revoke the grant of {each.tool}"),
                method="post",
                action=request.url("approvals", "grants", each.id),
            ),
        ]
        for each in grants
    ]
    columns = ("Tool", "Caller", "For", "Approver", "Ends", "")
    return table("Active grants", columns, rows, "There are no active grants.", "calls")


def _state(held: HeldCall) -> Html:
    return pill(*_STATES.get(held.state, (held.state, "quiet", "")))


def _decisions(held: HeldCall) -> Html | None:
    if not held.decisions:
        return None
    rows: list[list[Child]] = [
        [
            principal_name(each.approver),
            "approved" if each.decision == "approve" else "denied",
            "" if each.duration == "once" else each.duration,
            each.reason,
            timestamp(each.at, with_date=True),
        ]
        for each in held.decisions
    ]
    return table("Decisions", ("Approver", "Decision", "For", "Reason", "At"), rows, "", "calls")


def _form(request: PageRequest, held: HeldCall) -> Html:
    if not held.can_deny:
        return h.p(held.obstacle, class_="dim")
    durations = dict(_DURATIONS)
    if held.row.session is not None:
        durations["session"] = "This tool for this caller, in this session"
    choices = (
        h.label(
            h.input(type="radio", name="duration", value=value, checked=value == "once"), f" {label}", class_="check"
        )
        for value, label in durations.items()
    )
    approve = (
        h.p(held.obstacle, class_="bad", role="note")
        if held.obstacle
        else markup(
            h.fieldset(h.legend("Approve"), choices),
            h.div(h.button("Approve", class_="primary", name="decision", value="approve"), class_="actions"),
        )
    )
    return h.form(
        h.input(type="hidden", name="form_token", value=request.form_token),
        h.div(
            h.label("Reason (required to deny; the caller receives it)", for_="reason"),
            h.textarea("", id="reason", name="reason", rows=2, maxlength=500),
        ),
        approve,
        h.div(h.button("Deny", class_="danger", name="decision", value="deny"), class_="actions"),
        method="post",
        action=request.url("approvals", held.row.id),
        class_="stacked",
    )
