"""From `limits:` in the settings to the stage that enforces them."""

from typing import TYPE_CHECKING

import limits

from gateway.settings.limits import LimitRule, Limits
from gateway.stages.limit import Costs, Limit, Rule

if TYPE_CHECKING:
    from gateway.state.redis_windows import RedisWindows


def limit_stage(settings: Limits, windows: "RedisWindows | None") -> Limit:
    """Counted in memory by one process, in Redis by several."""
    rate = limits.parse(settings.calls)
    rules = [Rule("calls", rate.amount, rate.get_expiry()), *(_rule(*each) for each in settings.rules.items())]
    costs = Costs(tuple(settings.costs.items()), settings.cost_per_kilobyte)
    if windows is None:
        return Limit(rules, costs)
    from gateway.state.redis_windows import Unreachable

    return Limit(rules, costs, windows, Unreachable)


def _rule(name: str, given: LimitRule) -> Rule:
    rate = limits.parse(given.rate)
    return Rule(
        name,
        rate.amount,
        rate.get_expiry(),
        per=given.per,
        backend=given.backend,
        tool=given.tool,
        effects=frozenset(given.effects) if given.effects is not None else None,
        counts=given.counts,
        on_failure=given.on_failure,
    )
