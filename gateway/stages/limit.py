"""So much in a window, for each tenant, principal, backend, tool or effect. Charged first, also for later refusals.

A call that one limit refuses takes nothing from the others.
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

KEPT: Final = 100_000
NAME_CHARS: Final = 256
TRIES: Final = 8
KILOBYTE: Final = 1024

Dimension = Literal["tenant", "principal", "backend", "tool", "effect"]


@dataclass(frozen=True, slots=True)
class RateRule:
    """One limit: which calls it counts, and what shares one count."""

    name: str
    amount: float
    seconds: float
    per: tuple[Dimension, ...] = ("principal",)
    backend: str | None = None
    tool: str | None = None
    """A canonical id, or a pattern of them."""
    effects: frozenset[int] | None = None
    counts: Literal["calls", "cost"] = "calls"
    on_failure: Literal["closed", "local"] = "local"

    def counts_in(self, route: Route | None) -> bool:
        if route is None:
            return not (self.backend or self.tool or self.effects) and set(self.per) <= {"tenant", "principal"}
        if self.backend is not None and route.namespace != self.backend:
            return False
        if self.tool is not None and not fnmatchcase(route.canonical, self.tool):
            return False
        return self.effects is None or route.effect in self.effects

    def policy(self) -> str:
        unit = "" if self.counts == "calls" else ';gatehouse-unit="cost"'
        return f'"{self.name}";q={self.amount:.0f};w={self.seconds:.0f}{unit}'


@dataclass(frozen=True, slots=True)
class CallCosts:
    """What a call costs where costs are counted: 1 unless said, and so much more for each kilobyte of its result."""

    tools: tuple[tuple[str, float], ...] = ()
    per_kilobyte: float = 0.0

    def of(self, route: Route | None) -> float:
        if route is not None:
            for pattern, cost in self.tools:
                if fnmatchcase(route.canonical, pattern):
                    return cost
        return 1.0


class SharedWindows(Protocol):
    """Windows that several processes share: `gateway.state.redis_windows`."""

    def spend(self, keys: tuple[str, ...], now: float) -> bool: ...

    async def take(self, charges: Sequence[WindowCharge]) -> Shortfall | None: ...

    async def add(self, charges: Sequence[WindowCharge]) -> None: ...


class Limit:
    """`shared` counts for all processes, and raises `down` when it cannot; then each rule says what to do."""

    def __init__(
        self,
        rules: Sequence[RateRule],
        costs: CallCosts | None = None,
        shared: SharedWindows | None = None,
        down: type[Exception] = ConnectionError,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = tuple(rules)
        self._costs = costs or CallCosts()
        self._local = MemoryWindows()
        self._shared = shared
        self._down = down
        self._clock = clock
        self._plans: dict[tuple[str, int] | None, tuple[RateRule, ...]] = {}
        self._bills: OrderedDict[tuple[str, str, int], _Entry] = OrderedDict()

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        route, principal = call.route, call.caller.principal
        if route is None:
            known = (principal, "", 0)
        elif len(route.canonical) > NAME_CHARS:
            known = (principal, _name(route), route.effect)
        else:
            known = (principal, route.canonical, route.effect)
        entry = self._bills.get(known) or self._entry(call, known)
        if self._shared is None:
            if (short := entry.bill.take(self._clock())) is not None:
                raise _refusal(entry.plan, short)
        elif not self._shared.spend(entry.bill.keys, self._clock()):
            return self._ask_shared(self._shared, call, call_next, entry)
        return self._settle(call, call_next, entry) if entry.settles else call_next(call)

    def _entry(self, call: Call, known: tuple[str, str, int]) -> "_Entry":
        route = call.route
        plan = self._plan(route)
        cost = self._costs.of(route)
        charges = [
            WindowCharge(_key(rule, call), rule.amount, rule.seconds, cost if rule.counts == "cost" else 1.0)
            for rule in plan
        ]
        settles = bool(self._costs.per_kilobyte) and any(rule.counts == "cost" for rule in plan)
        entry = self._bills[known] = _Entry(plan, self._local.bill(charges), settles)
        if len(self._bills) > KEPT:
            self._make_room()
        return entry

    def _plan(self, route: Route | None) -> tuple[RateRule, ...]:
        key = (_name(route), route.effect) if route is not None else None
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > KEPT:
                self._plans.clear()
            plan = self._plans[key] = tuple(rule for rule in self._rules if rule.counts_in(route))
        return plan

    def _make_room(self) -> None:
        """Forget an old bill, rather one on which nothing is owed."""
        now = self._clock()
        for _ in range(TRIES):
            known, entry = self._bills.popitem(last=False)
            if entry.bill.idle(now):
                return
            self._bills[known] = entry
        self._bills.popitem(last=False)

    def usage(self, tenant: str) -> dict[str, tuple[RateRule, WindowCharge, float]]:
        """By key: what of a tenant's limits is taken in this process alone. The key names rule, tenant and the rest."""
        found: dict[str, tuple[RateRule, WindowCharge, float]] = {}
        now = self._clock()
        for entry in self._bills.values():
            for rule, charge, (window, _) in zip(entry.plan, entry.bill.charges, entry.bill.windows, strict=True):
                if charge.key.split("|", 2)[1] == tenant and charge.key not in found:
                    window.expire(now)
                    found[charge.key] = (rule, charge, window.total)
        return found

    # ---- several processes ----

    async def _ask_shared(self, shared: SharedWindows, call: Call, call_next: Handler, entry: "_Entry") -> Result:
        try:
            short = await shared.take(entry.bill.charges)
        except self._down:
            short = self._alone(entry)
        if short is not None:
            raise _refusal(entry.plan, short)
        return await (self._settle(call, call_next, entry) if entry.settles else call_next(call))

    def _alone(self, entry: "_Entry") -> Shortfall | None:
        """Redis is away: some limits refuse, the others are counted by each process for itself."""
        for rule in entry.plan:
            if rule.on_failure == "closed":
                raise Fault(
                    Kind.UNAVAILABLE,
                    f"The limit {rule.name} cannot be checked now. Try again.",
                    retry_after=1.0,
                    details={"limit": rule.name},
                )
        return entry.bill.take(self._clock())

    # ---- what is known only afterwards ----

    async def _settle(self, call: Call, call_next: Handler, entry: "_Entry") -> Result:
        result = await call_next(call)
        extra = ceil(call.record.notes.get("result_bytes", 0) / KILOBYTE) * self._costs.per_kilobyte
        if extra:
            costly = [
                charge._replace(weight=extra)
                for charge, rule in zip(entry.bill.charges, entry.plan, strict=True)
                if rule.counts == "cost"
            ]
            try:
                if self._shared is not None:
                    await self._shared.add(costly)
                else:
                    self._local.bill(costly).add(self._clock())
            except self._down:
                self._local.bill(costly).add(self._clock())
        return result


@dataclass(frozen=True, slots=True)
class _Entry:
    plan: tuple[RateRule, ...]
    bill: CallCharges
    settles: bool


def _refusal(plan: Sequence[RateRule], short: Shortfall) -> Fault:
    rule = plan[short.which]
    retry_after = max(1.0, ceil(short.wait * 10) / 10)
    what = "calls" if rule.counts == "calls" else "units of cost"
    told = f"Too many calls: {rule.amount:.0f} {what} in {rule.seconds:.0f} s are allowed ({rule.name})."
    fault = Fault(Kind.RATE_LIMITED, told, retry_after=retry_after, details={"limit": rule.name})
    fault.headers = (
        (b"ratelimit-policy", ", ".join(each.policy() for each in plan).encode()),
        (b"ratelimit", f'"{rule.name}";r=0;t={ceil(short.wait)}'.encode()),
    )
    return fault


def _name(route: Route) -> str:
    """What a route is counted as. A URI may be as long as a client likes; of a long one only a digest is kept."""
    name = route.canonical
    if len(name) <= NAME_CHARS:
        return name
    return f"{route.namespace}:sha256:{sha256(name.encode(errors='replace')).hexdigest()}"


def _key(rule: RateRule, call: Call) -> str:
    """Tenant first: no window is ever two tenants'."""
    caller, route = call.caller, call.route
    parts = [rule.name, caller.tenant]
    if "principal" in rule.per:
        parts.append(caller.principal)
    if route is not None:
        if "backend" in rule.per:
            parts.append(route.namespace)
        if "tool" in rule.per:
            parts.append(_name(route))
        if "effect" in rule.per:
            parts.append(str(route.effect))
    return "|".join(parts)
