"""Callers, tenants and routes in the terms that policy knows."""

from fnmatch import fnmatchcase
from typing import Literal, Protocol

from gateway.contract import Caller, Route
from gateway.policy.ruleset import PolicyCaller, PolicyTarget


class PolicyTenant(Protocol):
    """What policy needs to know of a tenant."""

    @property
    def read_only(self) -> bool: ...

    @property
    def suspended(self) -> bool: ...

    @property
    def backends(self) -> tuple[str, ...]: ...

    @property
    def servers(self) -> tuple[str, ...]: ...


def asker_of(caller: Caller, tenant: PolicyTenant | None, subject: str) -> PolicyCaller:
    """`subject` is the caller's own, or empty where no policy names one. Without a tenant it is as if suspended."""
    return PolicyCaller(
        tenant=caller.tenant,
        kind=caller.kind,
        subject=subject,
        groups=caller.groups,
        scopes=caller.scopes,
        readonly=tenant is not None and tenant.read_only,
        suspended=tenant is None or tenant.suspended,
    )


def target_of(route: Route, granted: bool) -> PolicyTarget:
    """The route as policy knows it. A tool has an input schema, a resource an address."""
    kind: Literal["Tool", "Prompt", "Resource"]
    if "inputSchema" in route.definition:
        kind = "Tool"
    else:
        kind = "Resource" if "uri" in route.definition or "uriTemplate" in route.definition else "Prompt"
    return PolicyTarget(kind, route.canonical, route.namespace, route.name, route.effect, route.pinned, granted)


def granted(tenant: PolicyTenant | None, namespace: str) -> bool:
    """Whether the tenant has that backend."""
    return tenant is not None and any(fnmatchcase(namespace, pattern) for pattern in tenant.backends)
