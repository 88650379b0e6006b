import pytest

from gateway.errors import Fault, Kind
from gateway.upstream.breaker import FAILURE_THRESHOLD, OPEN_SECONDS, Breaker


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_breaker_opens_after_the_failure_threshold_and_later_admits_one_trial_call() -> None:
    clock = FakeClock()
    breaker = Breaker("far", clock)
    for _ in range(FAILURE_THRESHOLD):
        breaker.enter()
        breaker.record_failure()
    assert breaker.state == "open"
    with pytest.raises(Fault) as rejected:
        breaker.enter()
    assert rejected.value.kind is Kind.UNAVAILABLE
    assert rejected.value.retry_after == OPEN_SECONDS
    clock.now += OPEN_SECONDS
    assert breaker.state == "half-open"
    breaker.enter()
    with pytest.raises(Fault):
        breaker.enter()  # another trial call is running
    breaker.end_trial()
    breaker.enter()
    breaker.record_failure()
    assert breaker.state == "open"
