"""From the settings to the stage."""

from typing import Any

from gateway.settings import LimitSettings
from gateway.settings.limits import LimitRule
from gateway.wiring.limits import limit_stage


def test_rules_and_costs_are_what_the_settings_say() -> None:
    rule = LimitRule(rate="10/hour", per=("tenant",), tool="launch.*", effects=(3,), counts="cost", on_failure="closed")
    given = LimitSettings(calls="5/minute", rules={"launch": rule}, costs={"launch.*": 50}, cost_per_kilobyte=0.5)
    made: Any = limit_stage(given, None)
    calls, launch = made._rules
    assert (calls.amount, calls.seconds, calls.per) == (5, 60, ("principal",))
    assert (launch.name, launch.amount, launch.seconds, launch.tool) == ("launch", 10, 3600, "launch.*")
    assert (launch.effects, launch.counts, launch.on_failure) == (frozenset({3}), "cost", "closed")
    assert (made._costs.tools, made._costs.per_kilobyte) == ((("launch.*", 50.0),), 0.5)
