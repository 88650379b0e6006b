"""Turns Cedar's allow or deny into a verdict: allow, hidden, missing scope, approval required, or deny."""

from dataclasses import dataclass, replace
from typing import Literal

from gateway.policy.approval_rules import ApprovalRequirement, combine_rules
from gateway.policy.projection import Value
from gateway.policy.ruleset import PolicyCaller, PolicyNote, PolicyTarget, Ruleset

Outcome = Literal["allow", "deny", "scope", "approval", "hidden"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a request. `policies` are the ids of the deciding policies; empty if no policy permits it."""

    outcome: Outcome
    policies: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """Missing scopes; with them the request would be allowed."""
    approval: str = ""
    """Who must approve: `self` for the caller, or groups; empty if no approval is missing."""
    requirement: ApprovalRequirement | None = None
    """The groups that must approve; None if the caller may."""
    reason: str = ""
    """Reason from the annotations of the policies."""


def determine_verdict(
    rules: Ruleset,
    caller: PolicyCaller,
    action: str,
    target: PolicyTarget,
    *,
    args: tuple[tuple[str, Value], ...] = (),
    approved: bool = False,
) -> Verdict:
    """Evaluate a request. A missing scope or approval is reported only if it would be sufficient.

    Otherwise the response would reveal the existence of something that the caller may never use.
    """
    decision = rules.evaluate(caller, action, target, approved=approved, args=args)
    if decision.allowed:
        return Verdict("allow", decision.policies)
    if target.kind != "Tenant" and not rules.evaluate(caller, action, target, view="visible").allowed:
        return Verdict("hidden", decision.policies, reason=_reason(rules, decision.policies))
    notes = [rules.notes[id] for id in decision.policies if id in rules.notes]
    missing = tuple(each.advice[6:] for each in notes if each.advice.startswith("scope:"))
    approvers = [each.advice[9:] for each in notes if each.advice.startswith("approval:")]
    rules_by_group = [each.approval for each in notes if each.approval is not None]
    if notes and len(missing) + len(approvers) + len(rules_by_group) == len(decision.policies):
        with_scopes = replace(caller, scopes=caller.scopes | set(missing))
        asked = bool(approvers or rules_by_group)
        if rules.evaluate(with_scopes, action, target, approved=approved or asked, args=args).allowed:
            if missing:
                return Verdict("scope", decision.policies, scopes=missing)
            requirement = combine_rules(rules_by_group)
            # A group's approval also satisfies a policy that lets the caller approve, but not the reverse.
            approver = next((each for each in approvers if each != "self"), "")
            approver = approver or (requirement.describe() if requirement else "self")
            reason = _approval_reason(notes) or _reason(rules, decision.policies)
            return Verdict("approval", decision.policies, approval=approver, requirement=requirement, reason=reason)
    return Verdict("deny", decision.policies, reason=_reason(rules, decision.policies))


def _approval_reason(notes: list[PolicyNote]) -> str:
    """The reason of the policy that requires a group's approval, which is the stronger one."""
    return next((note.reason for note in notes if note.approval is not None and note.reason), "")


def _reason(rules: Ruleset, ids: tuple[str, ...]) -> str:
    """Return the reason of the first policy that has one; prefer policies that no scope or approval lifts."""
    notes = [note for id in ids if (note := rules.notes.get(id)) and note.reason]
    return min(notes, key=lambda note: note.advice != "").reason if notes else ""
