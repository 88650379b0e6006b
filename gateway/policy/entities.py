"""Conversion of callers, tenants and routes to the policy model."""

from fnmatch import fnmatchcase
from typing import Literal, Protocol

from gateway.contract import Caller, Route
from gateway.policy.ruleset import PolicyCaller, PolicyTarget


class PolicyTenant(Protocol):
    """The tenant attributes that policy reads."""

    @property
    def read_only(self) -> bool: ...

    @property
    def suspended(self) -> bool: ...

    @property
    def backends(self) -> tuple[str, ...]: ...

    @property
    def servers(self) -> tuple[str, ...]: ...


def to_policy_caller(caller: Caller, tenant: PolicyTenant | None, subject: str) -> PolicyCaller:
    """Convert a caller. `subject` is empty if no policy names subjects. An unknown tenant counts as suspended."""
    return PolicyCaller(
        tenant=caller.tenant,
        kind=caller.kind,
        subject=subject,
        groups=caller.groups,
        scopes=caller.scopes,
        readonly=tenant is not None and tenant.read_only,
        suspended=tenant is None or tenant.suspended,
    )


def to_policy_target(route: Route, granted: bool) -> PolicyTarget:
    """Convert a route. A definition with an input schema is a tool, one with a URI a resource."""
    kind: Literal["Tool", "Prompt", "Resource"]
    if "inputSchema" in route.definition:
        kind = "Tool"
    else:
        kind = "Resource" if "uri" in route.definition or "uriTemplate" in route.definition else "Prompt"
    return PolicyTarget(
        kind, route.canonical, route.namespace, route.name, route.effect, route.pinned, granted, route.needs_approval
    )


def has_backend(tenant: PolicyTenant | None, namespace: str) -> bool:
    """Return whether the tenant may use the backend."""
    return tenant is not None and any(fnmatchcase(namespace, pattern) for pattern in tenant.backends)
