"""Who sees what and who may do what, remembered: a decision made once costs a lookup from then on."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from gateway.contract import Call, Caller, Route
from gateway.errors import Fault, Kind, UnknownName
from gateway.policy.active_policies import ActivePolicies, LoadedPolicies
from gateway.policy.entities import PolicyTenant, asker_of, granted, target_of
from gateway.policy.projection import Projection, UnreadableArgument, Value
from gateway.policy.ruleset import BROKEN, PolicyCaller, PolicyTarget, Ruleset
from gateway.policy.verdict import Verdict, judge

ARGUMENTS: Final = "policy.arguments"
"""In place of policy ids when an argument that policy reads is not of its type."""
_CALLERS: Final = 20_000
_CLASSES: Final = 4_000
_ROUTES: Final = 8_000
_ARGUMENTS: Final = 1_000
_KEPT_CHARS: Final = 256
"""What a client made longer than this is decided on each time: nobody's text is remembered for good."""
_NOUN: Final = {"Tool": "tool", "Prompt": "prompt", "Resource": "resource"}


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed, allowed once approved, or refused; `policies` are the ids of the policies that decided."""

    policies: tuple[str, ...]
    context: str
    """What policy saw of the caller and the circumstances, as JSON, for the record."""
    approval: str = ""
    """Whose approval it waits for: `self`, or somebody else's."""
    message: str = ""
    details: Mapping[str, Any] | None = None
    refused: Literal["", "denied", "unknown"] = ""
    noun: str = "tool"

    def fault(self, name: str) -> Fault:
        """A new one each time: an exception that is raised again and again keeps every traceback."""
        if self.refused == "unknown":
            return UnknownName(f"Unknown {self.noun}: {name[:128]}", uri=name if self.noun == "resource" else None)
        fix = "Use a key or token that has it, or ask your operator for one." if self.details else None
        return Fault(Kind.DENIED, self.message, details=self.details, suggested_fix=fix)


class Authorizer:
    """Deny by default: an unknown or suspended tenant sees and may do nothing."""

    def __init__(self, tenant: Callable[[str], PolicyTenant | None], policies: ActivePolicies) -> None:
        self._tenant = tenant
        self._policies = policies
        self._seats: dict[Caller, _Seat] = {}
        self._classes: dict[Hashable, _Class] = {}
        self._views: dict[Hashable, _Sight] = {}

    # ---- asked for every call ----

    def decide(self, call: Call) -> Decision:
        """For what reaches a backend."""
        route = call.route
        assert route is not None
        known = self._seat(call.caller).kind.known
        key = (call.method, route.canonical, route.effect, route.pinned)
        decision = known.get(key)
        if decision is None:
            decision = self._learn(call, route, key)
        return decision if type(decision) is Decision else decision.decide(call)  # type: ignore[union-attr]

    def decide_list(self, call: Call) -> Decision:
        """For what the gateway answers itself."""
        kind = self._seat(call.caller).kind
        decision = kind.known.get("list")
        if decision is None:
            target = PolicyTarget("Tenant", call.caller.tenant)
            decision = kind.known["list"] = kind.decision(judge(kind.rules, kind.asker, "list", target), target)
        assert isinstance(decision, Decision)
        return decision

    def barred(self, caller: Caller) -> Fault | None:
        """Why the caller's tenant may do nothing at all, if it is so for a while."""
        tenant = self._tenant(caller.tenant)
        if tenant is None or not tenant.suspended:
            return None
        return Fault(Kind.DENIED, "This tenant is suspended.")

    # ---- asked for every view ----

    def key(self, caller: Caller) -> Hashable:
        """The same object for callers with the same view; another one as soon as anything changes that it rests on."""
        return self._seat(caller).sight

    def enters(self, caller: Caller, server: str) -> bool:
        tenant = self._tenant(caller.tenant)
        return tenant is not None and any(fnmatchcase(server, pattern) for pattern in tenant.servers)

    def has(self, caller: Caller, namespace: str) -> bool:
        """Whether the caller's tenant may use that backend at all."""
        tenant = self._tenant(caller.tenant)
        return tenant is not None and not tenant.suspended and granted(tenant, namespace)

    def sees(self, caller: Caller, route: Route) -> bool:
        """What a caller may never use is not in view; what only a scope, an approval or arguments decide is."""
        return self._seat(caller).sight.allows("seen", route)

    def lists(self, caller: Caller, route: Route) -> bool:
        """Of what is in view, read-only mode shows only reads; a call to the rest is told why it is denied."""
        return self._seat(caller).sight.allows("listed", route)

    # ---- inside ----

    def _seat(self, caller: Caller) -> "_Seat":
        tenant, now = self._tenant(caller.tenant), self._policies.now
        seat = self._seats.get(caller)
        if seat is None or seat.tenant is not tenant or seat.policies is not now:
            if len(self._seats) >= _CALLERS:
                self._seats.clear()
            seat = self._seats[caller] = self._seated(caller, tenant, now)
        return seat

    def _seated(self, caller: Caller, tenant: PolicyTenant | None, now: LoadedPolicies) -> "_Seat":
        rules = now.of(caller.tenant)
        # Whom no policy names alone is decided on as one of a class.
        subject = caller.subject if rules.names_subjects else ""
        asker = asker_of(caller, tenant, subject)
        if len(self._classes) >= _CLASSES or len(self._views) >= _CLASSES:
            self._classes.clear()
            self._views.clear()
        # By identity of the rules: those of another version are others, and kept alive by the key.
        kind = self._classes.get(key := (asker, rules, tenant))
        if kind is None:
            kind = self._classes[key] = _Class(asker, rules, tenant, now.version)
        shown = (asker.tenant, asker.kind, subject, asker.groups, rules, tenant)
        if (sight := self._views.get(shown)) is None:
            sight = self._views[shown] = _Sight(asker, rules, tenant)
        return _Seat(tenant, now, kind, sight)

    def _learn(self, call: Call, route: Route, key: tuple[str, str, int, bool]) -> "Decision | _ByArguments":
        kind = self._seat(call.caller).kind
        if len(kind.known) >= _ROUTES:
            kind.known.clear()
        target = target_of(route, granted(kind.tenant, route.namespace))
        if target.kind == "Resource":
            return self._learn_resource(kind, call.method, target)
        projection = kind.rules.projections.of(route.canonical) if target.kind == "Tool" else None
        learnt: Decision | _ByArguments
        if projection is None:
            learnt = kind.decision(judge(kind.rules, kind.asker, call.method, target), target)
        else:
            learnt = _ByArguments(kind, target, projection)
        kind.known[key] = learnt
        return learnt

    def _learn_resource(self, kind: "_Class", method: str, target: PolicyTarget) -> "Decision | _ByArguments":
        """By its label: there are as many URIs as a client can think of, and policy tells few of them apart."""
        label = kind.rules.label(target.id)
        key = ("resource", method, target.namespace, target.effect, target.pinned, label)
        decision = kind.known.get(key)
        if decision is None:
            decision = kind.decision(judge(kind.rules, kind.asker, method, target), target)
            if len(label) <= _KEPT_CHARS:
                kind.known[key] = decision
        return decision


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where a caller stands, as long as neither its tenant nor the policies change."""

    tenant: PolicyTenant | None
    policies: LoadedPolicies
    kind: "_Class"
    sight: "_Sight"


@dataclass(eq=False, slots=True)
class _Class:
    """All callers that policy cannot tell apart, and what was decided for them."""

    asker: PolicyCaller
    rules: Ruleset
    tenant: PolicyTenant | None
    version: str
    known: "dict[Any, Decision | _ByArguments]" = field(default_factory=dict[Any, Any])
    context: str = ""

    def __post_init__(self) -> None:
        asker = self.asker
        seen = {
            "groups": sorted(asker.groups),
            "scopes": sorted(asker.scopes),
            "readonly": asker.readonly,
            "suspended": asker.suspended,
            "policies": self.version,
        }
        self.context = msgspec.json.encode(seen).decode()

    def decision(self, judgement: Verdict, target: PolicyTarget) -> Decision:
        ids, noun = judgement.policies, _NOUN.get(target.kind, "tool")
        match judgement.outcome:
            case "allow":
                return Decision(ids, self.context)
            case "approval":
                return Decision(ids, self.context, approval=judgement.approval, message=judgement.reason)
            case "hidden":
                return Decision(ids, self.context, refused="unknown", noun=noun)
            case "scope":
                missing = list(judgement.scopes)
                message = f"This credential lacks the scope {' '.join(missing)}."
                details = {"missing_scopes": missing}
                return Decision(ids, self.context, message=message, details=details, refused="denied")
            case "deny":
                message = judgement.reason or "Policy does not allow this."
                if BROKEN in ids:
                    message = "Policy could not decide on this, so it is denied."
                return Decision(ids, self.context, message=message, refused="denied")


@dataclass(eq=False, slots=True)
class _ByArguments:
    """A tool whose arguments policy reads: one decision for each set of values it can see."""

    kind: _Class
    target: PolicyTarget
    projection: Projection
    known: dict[Any, Decision] = field(default_factory=dict[Any, Decision])

    def decide(self, call: Call) -> Decision:
        try:
            args = self.projection.read(call.arguments)
        except UnreadableArgument as exc:
            return Decision((ARGUMENTS,), self.kind.context, message=str(exc), refused="denied")
        decision = self.known.get(args)
        if decision is None:
            judgement = judge(self.kind.rules, self.kind.asker, call.method, self.target, args=args)
            decision = self.kind.decision(judgement, self.target)
            if len(self.known) >= _ARGUMENTS:
                self.known.clear()
            if sum(map(_chars, args)) <= _KEPT_CHARS:
                self.known[args] = decision
        return decision


def _chars(argument: tuple[str, Value]) -> int:
    value = argument[1]
    if isinstance(value, tuple):
        return sum(map(len, value)) + len(value)
    return len(value) if isinstance(value, str) else 0


@dataclass(eq=False, slots=True)
class _Sight:
    """What a class of callers may see, whatever their scopes."""

    asker: PolicyCaller
    rules: Ruleset
    tenant: PolicyTenant | None
    known: dict[Any, bool] = field(default_factory=dict[Any, bool])

    def allows(self, view: Literal["listed", "seen"], route: Route) -> bool:
        target = target_of(route, granted(self.tenant, route.namespace))
        label = self.rules.label(target.id)
        key = (view, target.kind, target.namespace, target.effect, target.pinned, label)
        allowed = self.known.get(key)
        if allowed is None:
            allowed = self.rules.ask(self.asker, _ACTION[target.kind], target, view=view).allowed
            if len(self.known) >= _ROUTES:
                self.known.clear()
            if len(label) <= _KEPT_CHARS:
                self.known[key] = allowed
        return allowed


_ACTION: Final = {"Tool": "tools/call", "Prompt": "prompts/get", "Resource": "resources/read"}
