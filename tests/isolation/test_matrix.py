"""The short form of `make isolation`: no attack makes a call of another tenant fail.

The ratio of the durations needs a quiet machine and several rounds; `make isolation` checks it.
"""

from pathlib import Path

from tests.isolation.attacks import ATTACKS, HARMLESS
from tests.isolation.matrix import open_site


async def test_threat_46_no_attack_of_one_tenant_makes_a_call_of_another_fail(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for name in ATTACKS:
            if name != HARMLESS:
                times, failures, steps = await site.measure(name, 0.5)
                assert failures == [], f"tenant A: {name}"
                assert times, name
                assert steps, f"tenant A made no step: {name}"
