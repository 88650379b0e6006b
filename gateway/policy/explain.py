"""Why somebody may or may not do something: the same judgement as for a call, told in words and policy ids."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gateway.contract import Caller, Json, Route
from gateway.policy.active_policies import ActivePolicies
from gateway.policy.decisions import ARGUMENTS
from gateway.policy.entities import PolicyTenant, asker_of, granted, target_of
from gateway.policy.projection import UnreadableArgument
from gateway.policy.ruleset import PolicyCaller, PolicyNote, PolicyTarget
from gateway.policy.verdict import Verdict, judge

Outcome = Literal["allow", "deny", "scope", "approval", "hidden", "unknown tenant", "unknown tool"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`sentence` is for people; `policies` are those that decided, with what they say of themselves."""

    outcome: Outcome
    sentence: str
    tenant: str
    principal: str
    tool: str
    effect: int | None = None
    policies: tuple[PolicyNote, ...] = ()
    context: Json | None = None
    """What policy saw beside the principal and the tool."""
    version: str = ""

    def as_json(self) -> Json:
        return asdict(self)


class PolicyExplainer:
    """`find` looks a tool up among all that is served, whoever may see it."""

    def __init__(
        self,
        tenant: Callable[[str], PolicyTenant | None],
        policies: ActivePolicies,
        find: Callable[[str], Route | None],
    ) -> None:
        self._tenant = tenant
        self._policies = policies
        self._find = find

    def why(
        self, caller: Caller, tool: str, arguments: Json, *, approved: bool = False, own: bool = False
    ) -> Explanation:
        """What would become of this caller's call of that tool with these arguments, and by which policies.

        `own`: told to somebody of the caller's tenant, to whom what other tenants alone have does not exist.
        """
        tenant, now = self._tenant(caller.tenant), self._policies.now
        who = f"{caller.kind} {caller.subject}"
        if tenant is None:
            said = f"There is no tenant {caller.tenant}."
            return Explanation("unknown tenant", said, caller.tenant, who, tool, version=now.version)
        route = self._find(tool)
        if route is None or (own and not granted(tenant, route.namespace)):
            said = f"No backend has a tool {tool}."
            return Explanation("unknown tool", said, caller.tenant, who, tool, version=now.version)
        rules = now.of(caller.tenant)
        asker = asker_of(caller, tenant, caller.subject)
        target = target_of(route, granted(tenant, route.namespace))
        projection = rules.projections.of(route.canonical)
        try:
            args = projection.read(arguments) if projection else ()
            judgement = judge(rules, asker, "tools/call", target, args=args, approved=approved)
        except UnreadableArgument as exc:
            args, judgement = (), Verdict("deny", (ARGUMENTS,), reason=str(exc))
        return Explanation(
            judgement.outcome,
            _sentence(judgement, target),
            caller.tenant,
            who,
            route.canonical,
            route.effect,
            tuple(
                rules.notes.get(id) or PolicyNote(id, "forbid", reason=judgement.reason) for id in judgement.policies
            ),
            _context(asker, target, dict(args), approved),
            now.version,
        )


def _sentence(judgement: Verdict, target: PolicyTarget) -> str:
    ids = ", ".join(judgement.policies) or "no policy permits it"
    match judgement.outcome:
        case "allow":
            return f"Allowed by {ids}."
        case "scope":
            return (
                f"Denied by {ids}: the credential lacks the scope {' '.join(judgement.scopes)}, which would be enough."
            )
        case "approval":
            whose = "the caller's own approval" if judgement.approval == "self" else f"approval by {judgement.approval}"
            return f"Needs {whose}, by {ids}."
        case "hidden":
            return f"Hidden, and a call answers as for an unknown tool: {_because(judgement, ids)}"
        case "deny":
            return f"Denied: {_because(judgement, ids)}"


def _because(judgement: Verdict, ids: str) -> str:
    return f"{judgement.reason} ({ids})" if judgement.reason else f"{ids}."


def _context(asker: PolicyCaller, target: PolicyTarget, args: dict[str, Any], approved: bool) -> Json:
    return {
        "groups": sorted(asker.groups),
        "scopes": sorted(asker.scopes),
        "approved": approved,
        "readonly": asker.readonly,
        "suspended": asker.suspended,
        "has_backend": target.granted,
        "pinned": target.pinned,
        "args": args,
    }
