"""Explanation of policy decisions in sentences and policy ids, from the same evaluation as for a call.

Used by `gatehouse policy why`, the operator API and the console.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gateway.contract import Caller, Json, Route
from gateway.policy.active_policies import ActivePolicies
from gateway.policy.decisions import INVALID_ARGUMENTS
from gateway.policy.entities import PolicyTenant, has_backend, to_policy_caller, to_policy_target
from gateway.policy.projection import UnreadableArgument
from gateway.policy.ruleset import PolicyCaller, PolicyNote, PolicyTarget
from gateway.policy.verdict import Verdict, determine_verdict

Outcome = Literal["allow", "deny", "scope", "approval", "hidden", "unknown tenant", "unknown tool"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of a policy check. `sentence` is for users; `policies` are the deciding policies."""

    outcome: Outcome
    sentence: str
    tenant: str
    principal: str
    tool: str
    effect: int | None = None
    policies: tuple[PolicyNote, ...] = ()
    context: Json | None = None
    """The policy context, besides principal and tool."""
    version: str = ""

    def as_json(self) -> Json:
        return asdict(self)


class PolicyExplainer:
    """Explains decisions. `find` looks a tool up among all served tools, regardless of visibility."""

    def __init__(
        self,
        tenant: Callable[[str], PolicyTenant | None],
        policies: ActivePolicies,
        find: Callable[[str], Route | None],
    ) -> None:
        self._tenant = tenant
        self._policies = policies
        self._find = find

    def explain(
        self, caller: Caller, tool: str, arguments: Json, *, approved: bool = False, own_tenant_only: bool = False
    ) -> Explanation:
        """Explain the decision on a call of `tool` by `caller`.

        `own_tenant_only` reports tools of backends that the caller's tenant does not have as unknown.
        """
        tenant, policies = self._tenant(caller.tenant), self._policies.current
        principal = f"{caller.kind} {caller.subject}"
        if tenant is None:
            sentence = f"Unknown tenant: {caller.tenant}."
            return Explanation("unknown tenant", sentence, caller.tenant, principal, tool, version=policies.version)
        route = self._find(tool)
        if route is None or (own_tenant_only and not has_backend(tenant, route.namespace)):
            sentence = f"Unknown tool: {tool}."
            return Explanation("unknown tool", sentence, caller.tenant, principal, tool, version=policies.version)
        rules = policies.for_tenant(caller.tenant)
        policy_caller = to_policy_caller(caller, tenant, caller.subject)
        target = to_policy_target(route, has_backend(tenant, route.namespace))
        projection = rules.projections.for_tool(route.canonical)
        try:
            args = projection.read(arguments) if projection else ()
            verdict = determine_verdict(rules, policy_caller, "tools/call", target, args=args, approved=approved)
        except UnreadableArgument as exc:
            args, verdict = (), Verdict("deny", (INVALID_ARGUMENTS,), reason=str(exc))
        return Explanation(
            verdict.outcome,
            _sentence(verdict, target),
            caller.tenant,
            principal,
            route.canonical,
            route.effect,
            tuple(rules.notes.get(id) or PolicyNote(id, "forbid", reason=verdict.reason) for id in verdict.policies),
            _context(policy_caller, target, dict(args), approved),
            policies.version,
        )


def _sentence(verdict: Verdict, target: PolicyTarget) -> str:
    ids = ", ".join(verdict.policies) or "no policy permits it"
    match verdict.outcome:
        case "allow":
            return f"Allowed by {ids}."
        case "scope":
            return f"Denied by {ids}: the credential lacks the scope {' '.join(verdict.scopes)}."
        case "approval":
            approval = "the caller's own approval" if verdict.approval == "self" else f"approval by {verdict.approval}"
            return f"Requires {approval} ({ids})."
        case "hidden":
            return f"Hidden; a call returns an unknown-tool error: {_reason(verdict, ids)}"
        case "deny":
            return f"Denied: {_reason(verdict, ids)}"


def _reason(verdict: Verdict, ids: str) -> str:
    return f"{verdict.reason} ({ids})" if verdict.reason else f"{ids}."


def _context(caller: PolicyCaller, target: PolicyTarget, args: dict[str, Any], approved: bool) -> Json:
    return {
        "groups": sorted(caller.groups),
        "scopes": sorted(caller.scopes),
        "approved": approved,
        "readonly": caller.readonly,
        "suspended": caller.suspended,
        "has_backend": target.granted,
        "pinned": target.pinned,
        "needs_approval": target.needs_approval,
        "args": args,
    }
