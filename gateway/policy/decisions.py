"""Cached policy decisions for calls, lists and views. A cached decision costs one lookup."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from gateway.contract import Call, Caller, Route
from gateway.errors import Fault, Kind, UnknownName
from gateway.policy.active_policies import ActivePolicies, LoadedPolicies
from gateway.policy.approval_rules import ApprovalRequirement
from gateway.policy.entities import PolicyTenant, has_backend, to_policy_caller, to_policy_target
from gateway.policy.projection import Projection, UnreadableArgument, Value
from gateway.policy.ruleset import EVALUATION_ERROR, PolicyCaller, PolicyTarget, Ruleset
from gateway.policy.verdict import Verdict, determine_verdict

INVALID_ARGUMENTS: Final = "policy.arguments"
"""Reported instead of policy ids if an argument that policy reads has the wrong type."""
_MAX_CALLERS: Final = 20_000
_MAX_CLASSES: Final = 4_000
_MAX_DECISIONS: Final = 8_000
_MAX_ARGUMENT_SETS: Final = 1_000
_MAX_CACHED_CHARS: Final = 256
"""Decisions on longer client-supplied text are not cached, to bound memory."""
_NOUNS: Final = {"Tool": "tool", "Prompt": "prompt", "Resource": "resource"}


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed, allowed after approval, or denied. `policies` are the ids of the deciding policies."""

    policies: tuple[str, ...]
    context: str
    """The policy context of the decision as JSON, for the audit log."""
    approval: str = ""
    """Who must approve: `self` for the caller, or groups; empty if no approval is needed."""
    requirement: ApprovalRequirement | None = None
    """The groups that must approve."""
    version: str = ""
    """Version of the policies."""
    message: str = ""
    details: Mapping[str, Any] | None = None
    denied: Literal["", "denied", "unknown"] = ""
    noun: str = "tool"

    def fault(self, name: str) -> Fault:
        """Build the fault of a denial. Never cached: a reused exception accumulates tracebacks."""
        if self.denied == "unknown":
            return UnknownName(f"Unknown {self.noun}: {name[:128]}", uri=name if self.noun == "resource" else None)
        fix = "Use a key or token with this scope, or ask an operator for one." if self.details else None
        return Fault(Kind.DENIED, self.message, details=self.details, suggested_fix=fix)


class Authorizer:
    """Decides what callers may see and do. Denies by default, also for unknown and suspended tenants.

    `tenant` looks a tenant up by name.
    """

    def __init__(self, tenant: Callable[[str], PolicyTenant | None], policies: ActivePolicies) -> None:
        self._tenant = tenant
        self._policies = policies
        self._entries: dict[Caller, _CallerEntry] = {}
        self._classes: dict[Hashable, _CallerClass] = {}
        self._views: dict[Hashable, _Visibility] = {}

    # ---- per call ----

    def decide(self, call: Call) -> Decision:
        """Decide on a request that goes to a backend."""
        route = call.route
        assert route is not None
        decisions = self._entry(call.caller).caller_class.decisions
        key = (call.method, route.canonical, route.effect, route.pinned, route.needs_approval)
        decision = decisions.get(key)
        if decision is None:
            decision = self._decide_uncached(call, route, key)
        return decision if type(decision) is Decision else decision.decide(call)  # type: ignore[union-attr]

    def preview(self, call: Call) -> Decision | None:
        """The decision on a request as far as it is known before its arguments; None if policy reads them."""
        route = call.route
        assert route is not None
        decisions = self._entry(call.caller).caller_class.decisions
        key = (call.method, route.canonical, route.effect, route.pinned, route.needs_approval)
        decision = decisions.get(key) or self._decide_uncached(call, route, key)
        return decision if isinstance(decision, Decision) else None

    def decide_list(self, call: Call) -> Decision:
        """Decide on a request that the gateway answers itself, such as a list."""
        caller_class = self._entry(call.caller).caller_class
        decision = caller_class.decisions.get("list")
        if decision is None:
            target = PolicyTarget("Tenant", call.caller.tenant)
            decision = caller_class.decisions["list"] = caller_class.to_decision(
                determine_verdict(caller_class.rules, caller_class.policy_caller, "list", target), target
            )
        assert isinstance(decision, Decision)
        return decision

    def tenant_denial(self, caller: Caller) -> Fault | None:
        """Return the fault of a suspended tenant; None if the tenant is not suspended."""
        tenant = self._tenant(caller.tenant)
        if tenant is None or not tenant.suspended:
            return None
        # The same text as the reason of the shipped policy `guard.suspended`: unknown and known names must not differ.
        return Fault(Kind.DENIED, "This tenant is suspended.")

    def is_approver(self, caller: Caller) -> bool:
        """Return whether some policy of the caller's tenant lets a group of the caller approve calls."""
        rules = self._policies.current.for_tenant(caller.tenant)
        return caller.kind == "user" and not caller.groups.isdisjoint(rules.approver_groups)

    # ---- per view ----

    def view_key(self, caller: Caller) -> Hashable:
        """Return the same object for callers with the same view, and a new one after a policy or tenant change."""
        return self._entry(caller).visibility

    def can_enter(self, caller: Caller, server: str) -> bool:
        tenant = self._tenant(caller.tenant)
        return tenant is not None and any(fnmatchcase(server, pattern) for pattern in tenant.servers)

    def has_backend(self, caller: Caller, namespace: str) -> bool:
        """Return whether the caller's tenant may use the backend."""
        tenant = self._tenant(caller.tenant)
        return tenant is not None and not tenant.suspended and has_backend(tenant, namespace)

    def can_see(self, caller: Caller, route: Route) -> bool:
        """Return whether some scope, approval or argument could make the route usable for the caller."""
        return self._entry(caller).visibility.allows("visible", route)

    def can_list(self, caller: Caller, route: Route) -> bool:
        """Return whether lists show the route. Read-only tenants list only reads, but can see the rest."""
        return self._entry(caller).visibility.allows("listed", route)

    # ---- cache ----

    def _entry(self, caller: Caller) -> "_CallerEntry":
        tenant, policies = self._tenant(caller.tenant), self._policies.current
        entry = self._entries.get(caller)
        if entry is None or entry.tenant is not tenant or entry.policies is not policies:
            if len(self._entries) >= _MAX_CALLERS:
                self._entries.clear()
            entry = self._entries[caller] = self._build_entry(caller, tenant, policies)
        return entry

    def _build_entry(self, caller: Caller, tenant: PolicyTenant | None, policies: LoadedPolicies) -> "_CallerEntry":
        rules = policies.for_tenant(caller.tenant)
        # If no policy names a subject, callers that differ only in the subject share one class.
        subject = caller.subject if rules.names_subjects else ""
        policy_caller = to_policy_caller(caller, tenant, subject)
        if len(self._classes) >= _MAX_CLASSES or len(self._views) >= _MAX_CLASSES:
            self._classes.clear()
            self._views.clear()
        # Rulesets compare by identity: another version is another key, and the key keeps the ruleset alive.
        caller_class = self._classes.get(key := (policy_caller, rules, tenant))
        if caller_class is None:
            caller_class = self._classes[key] = _CallerClass(policy_caller, rules, tenant, policies.version)
        view_key = (policy_caller.tenant, policy_caller.kind, subject, policy_caller.groups, rules, tenant)
        if (visibility := self._views.get(view_key)) is None:
            visibility = self._views[view_key] = _Visibility(policy_caller, rules, tenant)
        return _CallerEntry(tenant, policies, caller_class, visibility)

    def _decide_uncached(
        self, call: Call, route: Route, key: tuple[str, str, int, bool, bool]
    ) -> "Decision | _ArgumentDecisions":
        caller_class = self._entry(call.caller).caller_class
        if len(caller_class.decisions) >= _MAX_DECISIONS:
            caller_class.decisions.clear()
        target = to_policy_target(route, has_backend(caller_class.tenant, route.namespace))
        if target.kind == "Resource":
            return self._decide_resource(caller_class, call.method, target)
        projection = caller_class.rules.projections.for_tool(route.canonical) if target.kind == "Tool" else None
        decision: Decision | _ArgumentDecisions
        if projection is None:
            decision = caller_class.to_decision(
                determine_verdict(caller_class.rules, caller_class.policy_caller, call.method, target), target
            )
        else:
            decision = _ArgumentDecisions(caller_class, target, projection)
        caller_class.decisions[key] = decision
        return decision

    def _decide_resource(
        self, caller_class: "_CallerClass", method: str, target: PolicyTarget
    ) -> "Decision | _ArgumentDecisions":
        """Cache by label: clients can invent any number of URIs, but policies distinguish few of them."""
        label = caller_class.rules.label(target.id)
        key = ("resource", method, target.namespace, target.effect, target.pinned, label)
        decision = caller_class.decisions.get(key)
        if decision is None:
            decision = caller_class.to_decision(
                determine_verdict(caller_class.rules, caller_class.policy_caller, method, target), target
            )
            if len(label) <= _MAX_CACHED_CHARS:
                caller_class.decisions[key] = decision
        return decision


@dataclass(frozen=True, slots=True)
class _CallerEntry:
    """Cached state of a caller; valid while its tenant and the policies are unchanged."""

    tenant: PolicyTenant | None
    policies: LoadedPolicies
    caller_class: "_CallerClass"
    visibility: "_Visibility"


@dataclass(eq=False, slots=True)
class _CallerClass:
    """Callers that policy cannot distinguish, with their cached decisions."""

    policy_caller: PolicyCaller
    rules: Ruleset
    tenant: PolicyTenant | None
    version: str
    decisions: "dict[Any, Decision | _ArgumentDecisions]" = field(default_factory=dict[Any, Any])
    context: str = ""

    def __post_init__(self) -> None:
        policy_caller = self.policy_caller
        context = {
            "groups": sorted(policy_caller.groups),
            "scopes": sorted(policy_caller.scopes),
            "readonly": policy_caller.readonly,
            "suspended": policy_caller.suspended,
            "policies": self.version,
        }
        self.context = msgspec.json.encode(context).decode()

    def to_decision(self, verdict: Verdict, target: PolicyTarget) -> Decision:
        ids, noun = verdict.policies, _NOUNS.get(target.kind, "tool")
        match verdict.outcome:
            case "allow":
                return Decision(ids, self.context)
            case "approval":
                return Decision(
                    ids,
                    self.context,
                    approval=verdict.approval,
                    requirement=verdict.requirement,
                    version=self.version,
                    message=verdict.reason,
                )
            case "hidden":
                return Decision(ids, self.context, denied="unknown", noun=noun)
            case "scope":
                missing = list(verdict.scopes)
                message = f"This credential lacks the scope {' '.join(missing)}."
                details = {"missing_scopes": missing}
                return Decision(ids, self.context, message=message, details=details, denied="denied")
            case "deny":
                message = verdict.reason or "Policy does not allow this."
                if EVALUATION_ERROR in ids:
                    message = "Policy evaluation failed, so this is denied. Ask an operator to check the log."
                return Decision(ids, self.context, message=message, denied="denied")


@dataclass(eq=False, slots=True)
class _ArgumentDecisions:
    """Cached decisions on a tool whose arguments policy reads, by the values of these arguments."""

    caller_class: _CallerClass
    target: PolicyTarget
    projection: Projection
    decisions: dict[Any, Decision] = field(default_factory=dict[Any, Decision])

    def decide(self, call: Call) -> Decision:
        try:
            args = self.projection.read(call.arguments)
        except UnreadableArgument as exc:
            return Decision((INVALID_ARGUMENTS,), self.caller_class.context, message=str(exc), denied="denied")
        decision = self.decisions.get(args)
        if decision is None:
            verdict = determine_verdict(
                self.caller_class.rules, self.caller_class.policy_caller, call.method, self.target, args=args
            )
            decision = self.caller_class.to_decision(verdict, self.target)
            if len(self.decisions) >= _MAX_ARGUMENT_SETS:
                self.decisions.clear()
            if sum(map(_chars, args)) <= _MAX_CACHED_CHARS:
                self.decisions[args] = decision
        return decision


def _chars(argument: tuple[str, Value]) -> int:
    value = argument[1]
    if isinstance(value, tuple):
        return sum(map(len, value)) + len(value)
    return len(value) if isinstance(value, str) else 0


@dataclass(eq=False, slots=True)
class _Visibility:
    """Cached visibility of routes for a class of callers, independent of their scopes."""

    policy_caller: PolicyCaller
    rules: Ruleset
    tenant: PolicyTenant | None
    cache: dict[Any, bool] = field(default_factory=dict[Any, bool])

    def allows(self, view: Literal["listed", "visible"], route: Route) -> bool:
        caller = self.policy_caller
        if route.backend.manifest.approvers_only and (
            caller.kind != "user" or caller.groups.isdisjoint(self.rules.approver_groups)
        ):
            return False
        target = to_policy_target(route, has_backend(self.tenant, route.namespace))
        label = self.rules.label(target.id)
        key = (view, target.kind, target.namespace, target.effect, target.pinned, target.needs_approval, label)
        allowed = self.cache.get(key)
        if allowed is None:
            allowed = self.rules.evaluate(self.policy_caller, _ACTIONS[target.kind], target, view=view).allowed
            if len(self.cache) >= _MAX_DECISIONS:
                self.cache.clear()
            if len(label) <= _MAX_CACHED_CHARS:
                self.cache[key] = allowed
        return allowed


_ACTIONS: Final = {"Tool": "tools/call", "Prompt": "prompts/get", "Resource": "resources/read"}
