"""The limit stage: sliding-window rate limits per tenant, principal, backend, tool or effect.

A call is charged before any later stage can reject it. It is charged to all matching limits or to none.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from math import ceil
from typing import Final, Literal, Protocol

from gateway.contract import Call, Handler, Result, Route
from gateway.errors import Fault, Kind
from gateway.state.windows import CallCharges, MemoryWindows, Shortfall, WindowCharge

MAX_CACHED: Final = 100_000
NAME_CHARS: Final = 256
EVICTION_TRIES: Final = 8
KILOBYTE: Final = 1024

Dimension = Literal["tenant", "principal", "backend", "tool", "effect"]


@dataclass(frozen=True, slots=True)
class RateRule:
    """One limit: which calls it counts, and which dimensions have a counter of their own."""

    name: str
    amount: float
    seconds: float
    per: tuple[Dimension, ...] = ("principal",)
    backend: str | None = None
    tool: str | None = None
    """A canonical tool id or a pattern of ids."""
    effects: frozenset[int] | None = None
    counts: Literal["calls", "cost"] = "calls"
    on_failure: Literal["closed", "local"] = "local"

    def applies_to(self, route: Route | None) -> bool:
        if route is None:
            return not (self.backend or self.tool or self.effects) and set(self.per) <= {"tenant", "principal"}
        if self.backend is not None and route.namespace != self.backend:
            return False
        if self.tool is not None and not fnmatchcase(route.canonical, self.tool):
            return False
        return self.effects is None or route.effect in self.effects

    def policy_header(self) -> str:
        unit = "" if self.counts == "calls" else ';gatehouse-unit="cost"'
        return f'"{self.name}";q={self.amount:.0f};w={self.seconds:.0f}{unit}'


@dataclass(frozen=True, slots=True)
class CallCosts:
    """Cost of a call for limits that count cost: 1 by default, plus an amount per kilobyte of its result."""

    tools: tuple[tuple[str, float], ...] = ()
    per_kilobyte: float = 0.0

    def of(self, route: Route | None) -> float:
        if route is not None:
            for pattern, cost in self.tools:
                if fnmatchcase(route.canonical, pattern):
                    return cost
        return 1.0


class SharedWindows(Protocol):
    """Windows shared by several processes; implemented by `gateway.state.redis_windows`."""

    def spend(self, keys: tuple[str, ...], now: float) -> bool: ...

    async def take(self, charges: Sequence[WindowCharge]) -> Shortfall | None: ...

    async def add(self, charges: Sequence[WindowCharge]) -> None: ...


class Limit:
    """Raises `Fault(RATE_LIMITED)` for a call over a limit.

    `shared` counts for all processes and raises `unavailable` on failure; then `RateRule.on_failure` applies.
    """

    def __init__(
        self,
        rules: Sequence[RateRule],
        costs: CallCosts | None = None,
        shared: SharedWindows | None = None,
        unavailable: type[Exception] = ConnectionError,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = tuple(rules)
        self._costs = costs or CallCosts()
        self._local = MemoryWindows()
        self._shared = shared
        self._unavailable = unavailable
        self._clock = clock
        self._rules_by_route: dict[tuple[str, int] | None, tuple[RateRule, ...]] = {}
        self._charges: OrderedDict[tuple[str, str, int], _CachedCharges] = OrderedDict()

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        route, principal = call.route, call.caller.principal
        if route is None:
            key = (principal, "", 0)
        elif len(route.canonical) > NAME_CHARS:
            key = (principal, _counted_name(route), route.effect)
        else:
            key = (principal, route.canonical, route.effect)
        entry = self._charges.get(key) or self._new_charges(call, key)
        if self._shared is None:
            if (short := entry.charges.take(self._clock())) is not None:
                raise _rate_limited(entry.rules, short)
        elif not self._shared.spend(entry.charges.keys, self._clock()):
            return self._charge_shared(self._shared, call, call_next, entry)
        return self._charge_result(call, call_next, entry) if entry.charges_result else call_next(call)

    def _new_charges(self, call: Call, known: tuple[str, str, int]) -> "_CachedCharges":
        route = call.route
        plan = self._rules_for(route)
        cost = self._costs.of(route)
        charges = [
            WindowCharge(_window_key(rule, call), rule.amount, rule.seconds, cost if rule.counts == "cost" else 1.0)
            for rule in plan
        ]
        settles = bool(self._costs.per_kilobyte) and any(rule.counts == "cost" for rule in plan)
        entry = self._charges[known] = _CachedCharges(plan, self._local.prepare(charges), settles)
        if len(self._charges) > MAX_CACHED:
            self._evict()
        return entry

    def _rules_for(self, route: Route | None) -> tuple[RateRule, ...]:
        key = (_counted_name(route), route.effect) if route is not None else None
        plan = self._rules_by_route.get(key)
        if plan is None:
            if len(self._rules_by_route) > MAX_CACHED:
                self._rules_by_route.clear()
            plan = self._rules_by_route[key] = tuple(rule for rule in self._rules if rule.applies_to(route))
        return plan

    def _evict(self) -> None:
        """Evict one of the oldest entries, preferably one with empty windows."""
        now = self._clock()
        for _ in range(EVICTION_TRIES):
            known, entry = self._charges.popitem(last=False)
            if entry.charges.is_idle(now):
                return
            self._charges[known] = entry
        self._charges.popitem(last=False)

    def usage(self, tenant: str) -> dict[str, tuple[RateRule, WindowCharge, float]]:
        """Usage of a tenant's limits in this process, by window key."""
        found: dict[str, tuple[RateRule, WindowCharge, float]] = {}
        now = self._clock()
        for entry in self._charges.values():
            for rule, charge, (window, _) in zip(
                entry.rules, entry.charges.charges, entry.charges.windows, strict=True
            ):
                if charge.key.split("|", 2)[1] == tenant and charge.key not in found:
                    window.expire(now)
                    found[charge.key] = (rule, charge, window.total)
        return found

    # ---- shared windows ----

    async def _charge_shared(
        self, shared: SharedWindows, call: Call, call_next: Handler, entry: "_CachedCharges"
    ) -> Result:
        try:
            short = await shared.take(entry.charges.charges)
        except self._unavailable:
            short = self._charge_locally(entry)
        if short is not None:
            raise _rate_limited(entry.rules, short)
        return await (self._charge_result(call, call_next, entry) if entry.charges_result else call_next(call))

    def _charge_locally(self, entry: "_CachedCharges") -> Shortfall | None:
        """Redis is unreachable: rules with `on_failure: closed` reject, the others count in this process."""
        for rule in entry.rules:
            if rule.on_failure == "closed":
                raise Fault(
                    Kind.UNAVAILABLE,
                    f"The limit {rule.name} cannot be checked now. Retry later.",
                    retry_after=1.0,
                    details={"limit": rule.name},
                )
        return entry.charges.take(self._clock())

    # ---- cost by result size ----

    async def _charge_result(self, call: Call, call_next: Handler, entry: "_CachedCharges") -> Result:
        result = await call_next(call)
        extra = ceil(call.record.notes.get("result_bytes", 0) / KILOBYTE) * self._costs.per_kilobyte
        if extra:
            costly = [
                charge._replace(weight=extra)
                for charge, rule in zip(entry.charges.charges, entry.rules, strict=True)
                if rule.counts == "cost"
            ]
            try:
                if self._shared is not None:
                    await self._shared.add(costly)
                else:
                    self._local.prepare(costly).add(self._clock())
            except self._unavailable:
                self._local.prepare(costly).add(self._clock())
        return result


@dataclass(frozen=True, slots=True)
class _CachedCharges:
    rules: tuple[RateRule, ...]
    charges: CallCharges
    charges_result: bool


def _rate_limited(rules: Sequence[RateRule], shortfall: Shortfall) -> Fault:
    rule = rules[shortfall.charge_index]
    retry_after = max(1.0, ceil(shortfall.wait * 10) / 10)
    what = "calls" if rule.counts == "calls" else "units of cost"
    message = f"Too many calls: {rule.amount:.0f} {what} in {rule.seconds:.0f} s are allowed ({rule.name})."
    fault = Fault(Kind.RATE_LIMITED, message, retry_after=retry_after, details={"limit": rule.name})
    fault.headers = (
        (b"ratelimit-policy", ", ".join(each.policy_header() for each in rules).encode()),
        (b"ratelimit", f'"{rule.name}";r=0;t={ceil(shortfall.wait)}'.encode()),
    )
    return fault


def _counted_name(route: Route) -> str:
    """The route's name in window keys. URIs have no length limit, so a long one is replaced by its digest."""
    name = route.canonical
    if len(name) <= NAME_CHARS:
        return name
    return f"{route.namespace}:sha256:{sha256(name.encode(errors='replace')).hexdigest()}"


def _window_key(rule: RateRule, call: Call) -> str:
    """The window key. It always contains the tenant, so no two tenants share a window."""
    caller, route = call.caller, call.route
    parts = [rule.name, caller.tenant]
    if "principal" in rule.per:
        parts.append(caller.principal)
    if route is not None:
        if "backend" in rule.per:
            parts.append(route.namespace)
        if "tool" in rule.per:
            parts.append(_counted_name(route))
        if "effect" in rule.per:
            parts.append(str(route.effect))
    return "|".join(parts)
