"""Calls that need the approval of other people. The approve stage uses it.

A held call is answered with `approval_required`, an approval id and a link. The same call again, by the same caller
and within its time, goes through once it is approved, and only once.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.approvals.binding import canonical_arguments, definition_digest, text_digest
from gateway.approvals.events import ApprovalAudit
from gateway.contract import Call
from gateway.errors import Fault, Kind
from gateway.policy.approval_rules import ApprovalRequirement
from gateway.policy.decisions import Decision
from gateway.state.approval_rows import ApprovalRow, ApprovalRows, GrantRow, binding_of

HOUR: Final = 3600.0
SESSION_SECONDS: Final = 8 * HOUR
"""A grant for a session ends after this time even if the session goes on."""


@dataclass(frozen=True, slots=True)
class ApprovalBounds:
    """Bounds on what callers can keep waiting."""

    max_waiting_per_principal: int = 20
    max_waiting_per_tenant: int = 200
    max_arguments_bytes: int = 64 * 1024
    max_grants_per_principal: int = 100


class HeldCalls:
    """Holds calls until they are approved.

    `channels` names the notification channels of a tenant and its approver groups; `on_asked` wakes their delivery.
    `link` builds the address of the page where a person decides, empty if there is none.
    """

    def __init__(
        self,
        rows: ApprovalRows,
        audit: ApprovalAudit,
        bounds: ApprovalBounds,
        *,
        link: Callable[[str], str] = lambda id: "",
        channels: Callable[[str, frozenset[str]], list[str]] = lambda tenant, groups: [],
        on_asked: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rows = rows
        self._audit = audit
        self._bounds = bounds
        self._link = link
        self._channels = channels
        self._on_asked = on_asked
        self._clock = clock

    async def require(self, call: Call, decision: Decision) -> str:
        """Return the approval or grant that lets the call run. Raises `Fault` if there is none yet."""
        requirement = decision.requirement
        assert requirement is not None
        if grant := await self.find_grant(call, decision, by_group=True):
            return grant
        wanted = self._row(call, decision, requirement)
        known = await self._rows.find_for_call(
            wanted.tenant, wanted.principal, wanted.tool, wanted.arguments_digest, wanted.created_at
        )
        for row in known:
            if binding_of(row) != binding_of(wanted):
                continue
            if row.state == "approved" and await self._rows.use(row, wanted.created_at):
                self._audit.record("run", call.caller, row, call.id)
                return f"approval:{row.id}"
            if row.state == "waiting":
                raise self._held(call, row, requirement)
            if row.state == "denied":
                raise await self._denied(call, row)
        others = (row for row in known if row.state == "approved" and binding_of(row) != binding_of(wanted))
        raise await self._ask(call, wanted, requirement, _explain_change(next(others, None), wanted))

    async def find_grant(self, call: Call, decision: Decision, *, by_group: bool = False) -> str:
        """The grant that covers the call, as text for the audit record; empty if there is none.

        `by_group` ignores grants that the caller gave itself.
        """
        assert call.route is not None
        caller, now = call.caller, self._clock()
        digest = definition_digest(call)
        for grant in await self._rows.find_grants(caller.tenant, caller.principal, call.route.canonical, now):
            if grant.session is not None and grant.session != call.client.session:
                continue
            if by_group and grant.approver == caller.principal:
                continue
            if (grant.definition_digest, grant.policy_version) == (digest, decision.version):
                return f"grant:{grant.id}"
        return ""

    async def grant_self(self, call: Call, decision: Decision, duration: str) -> None:
        """Keep the caller's own approval of this tool for an hour, or for this session."""
        assert call.route is not None
        caller, now = call.caller, self._clock()
        session = call.client.session if duration == "session" else None
        if duration not in ("hour", "session") or (duration == "session" and session is None):
            return
        grant = GrantRow(
            tenant=caller.tenant,
            id=secrets.token_urlsafe(12),
            principal=caller.principal,
            tool=call.route.canonical,
            definition_digest=definition_digest(call),
            policy_version=decision.version,
            session=session,
            approver=caller.principal,
            created_at=now,
            ends_at=now + (HOUR if duration == "hour" else SESSION_SECONDS),
        )
        if await self._rows.add_grant(grant, self._bounds.max_grants_per_principal):
            requirement = ApprovalRequirement((), HOUR)
            self._audit.record("granted", caller, self._row(call, decision, requirement), duration)

    # ---- asking ----

    async def _ask(self, call: Call, wanted: ApprovalRow, requirement: ApprovalRequirement, change: str) -> Fault:
        call.record.decision = "deny"
        size = len((wanted.arguments or "").encode())
        if size > self._bounds.max_arguments_bytes:
            message = "The arguments are too large for a person to review, so the call cannot be approved."
            details = {"payload_bytes": size, "max_bytes": self._bounds.max_arguments_bytes}
            return Fault(Kind.TOO_LARGE, message, details=details)
        deliveries = [
            {
                "id": secrets.token_urlsafe(16),
                "tenant": wanted.tenant,
                "approval_id": wanted.id,
                "channel": channel,
                "created_at": wanted.created_at,
            }
            for channel in self._channels(wanted.tenant, requirement.names)
        ]
        bounds = self._bounds
        row = await self._rows.add(wanted, bounds.max_waiting_per_principal, bounds.max_waiting_per_tenant, deliveries)
        if row is None:
            return Fault(
                Kind.RATE_LIMITED,
                "Too many calls wait for approval. Wait until some of them are decided or expire.",
                retry_after=60.0,
            )
        if row is wanted:
            self._audit.record("asked", call.caller, row)
            self._on_asked()
        return self._held(call, row, requirement, change)

    def _row(self, call: Call, decision: Decision, requirement: ApprovalRequirement) -> ApprovalRow:
        assert call.route is not None
        now, arguments = self._clock(), canonical_arguments(call.arguments)
        return ApprovalRow(
            tenant=call.caller.tenant,
            id=secrets.token_urlsafe(16),
            principal=call.caller.principal,
            tool=call.route.canonical,
            effect=call.route.effect,
            arguments=arguments,
            arguments_digest=text_digest(arguments),
            definition_digest=definition_digest(call),
            policy_version=decision.version,
            policies=",".join(decision.policies),
            reason=decision.message,
            requirement=json.dumps(requirement.groups),
            correlation_id=call.id,
            session=call.client.session,
            state="waiting",
            created_at=now,
            expires_at=now + requirement.seconds,
        )

    def _held(self, call: Call, row: ApprovalRow, requirement: ApprovalRequirement, change: str = "") -> Fault:
        call.record.decision = "deny"
        call.record.notes["approved"] = f"approval:{row.id}"
        link, until = self._link(row.id), datetime.fromtimestamp(row.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        place = f" at {link}" if link else ""
        return Fault(
            Kind.APPROVAL_REQUIRED,
            f"{row.reason or 'This call requires approval.'} {change}It waits for approval by"
            f" {requirement.describe()} (approval {row.id}).",
            details={
                "approval_id": row.id,
                "status": row.state,
                "url": link or None,
                "expires_at": row.expires_at,
                "approvers": [{"group": group, "count": count} for group, count in requirement.groups],
            },
            suggested_fix=f"Ask {requirement.describe()} to approve it{place}. Then repeat exactly this call before"
            f" {until}.",
        )

    async def _denied(self, call: Call, row: ApprovalRow) -> Fault:
        call.record.decision = "deny"
        call.record.notes["approved"] = f"approval:{row.id}"
        decisions = await self._rows.decisions(row.tenant, row.id)
        reason = next((each.reason for each in decisions if each.decision == "deny"), "")
        message = "An approver denied this call."
        details = {"approval_id": row.id, "status": "denied", "reason": reason, "expires_at": row.expires_at}
        return Fault(Kind.DENIED, f"{message} Reason: {reason}" if reason else message, details=details)


def _explain_change(known: ApprovalRow | None, wanted: ApprovalRow) -> str:
    """Why an approval that the caller has does not apply."""
    if known is None:
        return ""
    if known.definition_digest != wanted.definition_digest:
        return "The tool has changed since an equal call was approved. "
    return "The policies have changed since an equal call was approved. "
