"""Who may do what: the defaults of the house, decided in code."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol

from gateway.contract import Call, Caller, Route
from gateway.errors import Fault, Kind

LIST_SCOPE: Final = "mcp:list"
CALL_SCOPE: Final = "mcp:call"
WRITE_SCOPE: Final = "mcp:call:write"


class Tenant(Protocol):
    """What policy needs to know of a tenant."""

    @property
    def read_only(self) -> bool: ...

    @property
    def suspended(self) -> bool: ...

    @property
    def backends(self) -> tuple[str, ...]: ...

    @property
    def servers(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed, or the fault to answer with; `policies` are the ids of the rules that decided."""

    policies: tuple[str, ...]
    fault: Fault | None = None
    needs_approval: bool = False


class Policy:
    """Deny by default: an unknown or suspended tenant sees and may do nothing."""

    def __init__(self, tenant: Callable[[str], Tenant | None]) -> None:
        self._tenant = tenant

    def key(self, caller: Caller) -> Hashable:
        tenant = self._tenant(caller.tenant)
        # When the tenant changes, so does its key, and with it every view.
        return (caller.tenant, tenant.read_only, tenant.suspended, tenant.backends, tenant.servers) if tenant else None

    def enters(self, caller: Caller, server: str) -> bool:
        tenant = self._tenant(caller.tenant)
        return tenant is not None and any(fnmatchcase(server, pattern) for pattern in tenant.servers)

    def sees(self, caller: Caller, route: Route) -> bool:
        """What a caller may never use is not in view; what only a scope or an approval decides is."""
        tenant = self._tenant(caller.tenant)
        if tenant is None or tenant.suspended:
            return False
        return any(fnmatchcase(route.namespace, pattern) for pattern in tenant.backends)

    def lists(self, caller: Caller, route: Route) -> bool:
        """Of what is in view, read-only mode shows only reads; a call to the rest is told why it is denied."""
        tenant = self._tenant(caller.tenant)
        return tenant is not None and not (tenant.read_only and route.effect > 0)

    def decide_list(self, call: Call) -> Decision:
        return _scoped(call.caller, LIST_SCOPE)

    def decide(self, call: Call) -> Decision:
        route = call.route
        assert route is not None
        tenant = self._tenant(call.caller.tenant)
        if tenant is None or tenant.suspended:
            return Decision(("guard.tenant",), Fault(Kind.DENIED, "This tenant is not active."))
        if tenant.read_only and route.effect > 0:
            return Decision(("guard.readonly",), Fault(Kind.DENIED, "This tenant is read-only."))
        needed = (CALL_SCOPE, WRITE_SCOPE) if route.effect >= 2 else (CALL_SCOPE,)
        decision = _scoped(call.caller, *needed)
        if decision.fault is None and route.effect >= 3:
            return Decision(("approval.destructive",), needs_approval=True)
        return decision


def _scoped(caller: Caller, *needed: str) -> Decision:
    missing = [scope for scope in needed if scope not in caller.scopes]
    if not missing:
        return Decision(("default.permit",))
    fault = Fault(
        Kind.DENIED,
        f"This credential lacks the scope {' '.join(missing)}.",
        details={"missing_scopes": missing},
        suggested_fix="Use a key or token that has it, or ask your operator for one.",
    )
    return Decision(("guard.scope",), fault)
