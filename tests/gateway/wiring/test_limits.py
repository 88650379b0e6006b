"""The limit stage is built from the settings."""

from typing import Any

from gateway.settings import LimitSettings
from gateway.settings.limits import LimitRule
from gateway.wiring.limits import limit_stage


def test_rules_and_costs_are_built_from_the_settings() -> None:
    rule = LimitRule(rate="10/hour", per=("tenant",), tool="launch.*", effects=(3,), counts="cost", on_failure="closed")
    settings = LimitSettings(calls="5/minute", rules={"launch": rule}, costs={"launch.*": 50}, cost_per_kilobyte=0.5)
    stage: Any = limit_stage(settings, None)
    calls, launch = stage._rules
    assert (calls.amount, calls.seconds, calls.per) == (5, 60, ("principal",))
    assert (launch.name, launch.amount, launch.seconds, launch.tool) == ("launch", 10, 3600, "launch.*")
    assert (launch.effects, launch.counts, launch.on_failure) == (frozenset({3}), "cost", "closed")
    assert (stage._costs.tools, stage._costs.per_kilobyte) == ((("launch.*", 50.0),), 0.5)
