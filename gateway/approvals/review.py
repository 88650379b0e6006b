"""Review of held calls: what approvers see and decide. Used by the console, the API and the MCP tools.

An approver is a user with the scope `mcp:approve` in a group that the policy names, and not the caller. Rows of other
tenants and of other groups are reported as not found.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from gateway.approvals.events import ApprovalAudit
from gateway.approvals.held_calls import HOUR, SESSION_SECONDS
from gateway.approvals.redaction import RedactionRule, ShownArguments, show_arguments
from gateway.contract import Caller, Json
from gateway.contract.caller import ADMIN, APPROVE
from gateway.errors import Fault, Kind
from gateway.policy.approval_rules import ApprovalRequirement
from gateway.state.approval_rows import ApprovalRow, ApprovalRows, DecisionRow, GrantRow

DURATIONS: Final = ("once", "hour", "session")
Duration = Literal["once", "hour", "session"]
_MAX_LISTED: Final = 500
_MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A held call as one viewer may see it."""

    row: ApprovalRow
    state: str
    """`waiting`, `approved`, `denied`, `used`, `expired` or `void`."""
    requirement: ApprovalRequirement
    arguments: ShownArguments | None = None
    """None in lists."""
    decisions: tuple[DecisionRow, ...] = ()
    obstacle: str = ""
    """Why this viewer cannot approve it; empty if it can."""
    can_deny: bool = False

    def to_json(self) -> Json:
        row = self.row
        shown: Json = {
            "id": row.id,
            "status": self.state,
            "caller": row.principal,
            "tool": row.tool,
            "effect": row.effect,
            "reason": row.reason,
            "policies": row.policies.split(",") if row.policies else [],
            "approvers": [{"group": group, "count": count} for group, count in self.requirement.groups],
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "decided_at": row.decided_at,
            "used_at": row.used_at,
            "correlation_id": row.correlation_id,
        }
        if self.arguments is not None:
            shown |= {
                "arguments": self.arguments.text,
                "arguments_complete": self.arguments.complete,
                "can_approve": not self.obstacle,
                "obstacle": self.obstacle,
                "decisions": [
                    {"approver": each.approver, "decision": each.decision, "reason": each.reason, "at": each.at}
                    | ({"duration": each.duration} if each.decision == "approve" else {})
                    for each in self.decisions
                ],
            }
        return shown


class ApprovalReview:
    """Lists, shows and decides held calls, and manages grants. `redactions` are the rules of tenants by name."""

    def __init__(
        self,
        rows: ApprovalRows,
        audit: ApprovalAudit,
        redactions: Callable[[], Mapping[str, RedactionRule]] = dict,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rows = rows
        self._audit = audit
        self._redactions = redactions
        self._clock = clock

    async def list(self, viewer: Caller, *, state: str = "") -> "list[HeldCall]":
        """The held calls that the viewer may see, newest first, in this state or in any."""
        found = [self._held(row) for row in await self._rows.list(viewer.tenant, _MAX_LISTED)]
        return [each for each in found if _may_view(each, viewer) and state in ("", each.state)]

    async def show(self, viewer: Caller, id: str) -> HeldCall:
        """One held call with its arguments. Recorded as seen, unless by the caller. Raises `Fault(NOT_FOUND)`."""
        held = await self._get(viewer, id)
        if viewer.principal != held.row.principal:
            self._audit.record("seen", viewer, held.row)
        return held

    async def approve(self, approver: Caller, id: str, reason: str, duration: Duration = "once") -> HeldCall:
        """Approve a call. Raises `Fault` if the approver may not, or if it no longer waits."""
        held = await self._get(approver, id)
        if held.obstacle:
            raise Fault(Kind.DENIED, held.obstacle)
        if duration == "session" and held.row.session is None:
            raise Fault(Kind.INVALID_INPUT, "The caller's client has no session; approve once or for an hour.")
        return await self._decide(held, approver, "approve", reason, duration)

    async def deny(self, approver: Caller, id: str, reason: str) -> HeldCall:
        """Deny a call, with a reason for the caller. Seeing all arguments is not required."""
        held = await self._get(approver, id)
        if not held.can_deny:
            raise Fault(Kind.DENIED, held.obstacle)
        if not reason.strip():
            raise Fault(Kind.INVALID_INPUT, "A denial needs a reason, which the caller receives.")
        return await self._decide(held, approver, "deny", reason, "once")

    # ---- grants ----

    async def grants(self, viewer: Caller, *, is_approver: bool = False) -> "list[GrantRow]":
        """The active grants of the viewer; for approvers and operators, those of the tenant."""
        found = await self._rows.list_grants(viewer.tenant, self._clock())
        everyone = ADMIN in viewer.scopes or is_approver
        return [each for each in found if everyone or each.principal == viewer.principal]

    async def revoke(self, viewer: Caller, id: str, *, is_approver: bool = False) -> None:
        """End a grant. Raises `Fault(NOT_FOUND)` for one that the viewer does not see."""
        grant = next((each for each in await self.grants(viewer, is_approver=is_approver) if each.id == id), None)
        if grant is None or not await self._rows.revoke_grant(viewer.tenant, id, viewer.principal, self._clock()):
            raise Fault(Kind.NOT_FOUND, "There is no active grant with this id.")
        self._audit.record("revoked", viewer, _row_of(grant), grant.id)

    # ---- internals ----

    async def _get(self, viewer: Caller, id: str) -> HeldCall:
        row = await self._rows.get(viewer.tenant, id[:64])
        held = None if row is None else self._held(row)
        if held is None or not _may_view(held, viewer):
            raise Fault(Kind.NOT_FOUND, "There is no approval with this id, or it is not yours to decide.")
        own = viewer.principal == held.row.principal
        rule = self._redactions().get(viewer.tenant, RedactionRule())
        arguments = show_arguments(held.row.arguments, () if own else rule.for_viewer(viewer))
        decisions = tuple(await self._rows.decisions(viewer.tenant, held.row.id))
        obstacle = _obstacle(held, viewer, decisions)
        hidden = "" if arguments.complete else _hidden_arguments(rule)
        return replace(
            held, arguments=arguments, decisions=decisions, obstacle=obstacle or hidden, can_deny=not obstacle
        )

    async def _decide(
        self, held: HeldCall, approver: Caller, decision: Literal["approve", "deny"], reason: str, duration: Duration
    ) -> HeldCall:
        row, now = held.row, self._clock()
        made = DecisionRow(
            tenant=row.tenant,
            approval_id=row.id,
            approver=approver.principal,
            approver_groups=json.dumps(sorted(approver.groups & held.requirement.names)),
            decision=decision,
            duration=duration,
            reason=reason.strip()[:_MAX_REASON],
            at=now,
        )

        def is_met(decisions: "list[DecisionRow]") -> bool:
            return held.requirement.is_met(frozenset(json.loads(each.approver_groups)) for each in decisions)

        def grant(decisions: "list[DecisionRow]") -> GrantRow | None:
            return _grant(row, {each.duration for each in decisions}, approver, now)

        state = await self._rows.decide(made, is_met, grant)
        if state is None:
            raise Fault(Kind.ILLEGAL_STATE, "This call no longer waits: it was decided, or its time has passed.")
        self._audit.record("approved" if decision == "approve" else "denied", approver, row, made.reason)
        return await self._get(approver, row.id)

    def _held(self, row: ApprovalRow) -> HeldCall:
        groups: list[tuple[str, int]] = [(str(group), int(count)) for group, count in json.loads(row.requirement)]
        ended = row.state in ("waiting", "approved") and row.expires_at <= self._clock()
        requirement = ApprovalRequirement(tuple(groups), row.expires_at - row.created_at)
        return HeldCall(row, "expired" if ended else row.state, requirement)


def _may_view(held: HeldCall, viewer: Caller) -> bool:
    own = viewer.principal == held.row.principal
    return own or ADMIN in viewer.scopes or not viewer.groups.isdisjoint(held.requirement.names)


def _obstacle(held: HeldCall, viewer: Caller, decisions: tuple[DecisionRow, ...]) -> str:
    """Why the viewer cannot decide; empty if it can."""
    if viewer.principal == held.row.principal:
        return "You cannot decide on your own call. Another member of the group must."
    if viewer.kind != "user":
        return "Only a person can decide; this credential belongs to a service account."
    if viewer.groups.isdisjoint(held.requirement.names):
        return f"Only {held.requirement.describe()} can decide."
    if APPROVE not in viewer.scopes:
        return f"This credential lacks the scope {APPROVE}. Ask an operator to grant it."
    if held.state != "waiting":
        return f"This call no longer waits; it is {held.state}."
    if any(each.approver == viewer.principal for each in decisions):
        return "You have already decided on this call."
    return ""


def _hidden_arguments(rule: RedactionRule) -> str:
    groups = " or ".join(sorted(rule.visible_to))
    someone = f"a member of the group {groups}" if groups else "an approver who can see them"
    return f"You cannot see all arguments, so you cannot approve. Ask {someone}."


def _grant(row: ApprovalRow, durations: set[str], approver: Caller, now: float) -> GrantRow | None:
    """The grant that all approvers agree on; None if one of them approved a single call."""
    if len(durations) != 1 or (duration := durations.pop()) == "once":
        return None
    return GrantRow(
        tenant=row.tenant,
        id=secrets.token_urlsafe(12),
        principal=row.principal,
        tool=row.tool,
        definition_digest=row.definition_digest,
        policy_version=row.policy_version,
        session=row.session if duration == "session" else None,
        approver=approver.principal,
        created_at=now,
        ends_at=now + (HOUR if duration == "hour" else SESSION_SECONDS),
    )


def grant_to_json(grant: GrantRow) -> Json:
    shown: dict[str, Any] = {
        "id": grant.id,
        "caller": grant.principal,
        "tool": grant.tool,
        "for": "session" if grant.session else "hour",
        "approver": grant.approver,
        "created_at": grant.created_at,
        "ends_at": grant.ends_at,
    }
    return shown


def _row_of(grant: GrantRow) -> ApprovalRow:
    """The part of a grant that its audit record contains."""
    return ApprovalRow(
        tenant=grant.tenant,
        id=grant.id,
        principal=grant.principal,
        tool=grant.tool,
        effect=0,
        arguments=None,
        arguments_digest="",
        definition_digest=grant.definition_digest,
        policy_version=grant.policy_version,
        policies="",
        reason="",
        requirement="[]",
        correlation_id="",
        session=grant.session,
        state="used",
        created_at=grant.created_at,
        expires_at=grant.ends_at,
    )
