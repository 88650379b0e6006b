"""From Cedar's yes or no to what a caller is told: allowed, hidden, a scope or an approval away, or simply denied."""

from dataclasses import dataclass, replace
from typing import Literal

from gateway.policy.projection import Value
from gateway.policy.ruleset import PolicyCaller, PolicyTarget, Ruleset

Outcome = Literal["allow", "deny", "scope", "approval", "hidden"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`policies` are the ids of the policies that decided; none when nothing permits it."""

    outcome: Outcome
    policies: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """The missing ones, with which it would be allowed."""
    approval: str = ""
    """Whose approval would allow it: `self` is the caller's own."""
    reason: str = ""
    """What the policies themselves say."""


def judge(
    rules: Ruleset,
    asker: PolicyCaller,
    action: str,
    target: PolicyTarget,
    *,
    args: tuple[tuple[str, Value], ...] = (),
    approved: bool = False,
) -> Verdict:
    """What becomes of the request. A scope or an approval is named only where having it would be enough.

    So nobody learns of something that is never permitted to them by being told what it lacks.
    """
    verdict = rules.ask(asker, action, target, approved=approved, args=args)
    if verdict.allowed:
        return Verdict("allow", verdict.policies)
    if target.kind != "Tenant" and not rules.ask(asker, action, target, view="seen").allowed:
        return Verdict("hidden", verdict.policies, reason=_reason(rules, verdict.policies))
    notes = [rules.notes[id] for id in verdict.policies if id in rules.notes]
    missing = tuple(each.advice[6:] for each in notes if each.advice.startswith("scope:"))
    approvers = [each.advice[9:] for each in notes if each.advice.startswith("approval:")]
    if notes and len(missing) + len(approvers) == len(verdict.policies):
        able = replace(asker, scopes=asker.scopes | set(missing))
        if rules.ask(able, action, target, approved=approved or bool(approvers), args=args).allowed:
            if missing:
                return Verdict("scope", verdict.policies, scopes=missing)
            whose = next((each for each in approvers if each != "self"), "self")
            return Verdict("approval", verdict.policies, approval=whose, reason=_reason(rules, verdict.policies))
    return Verdict("deny", verdict.policies, reason=_reason(rules, verdict.policies))


def _reason(rules: Ruleset, ids: tuple[str, ...]) -> str:
    """The first one given, of policies that nothing would satisfy before those that a scope or approval would."""
    notes = [note for id in ids if (note := rules.notes.get(id)) and note.reason]
    return min(notes, key=lambda note: note.advice != "").reason if notes else ""
