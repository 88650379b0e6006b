import pytest

from gateway.errors import Fault, Kind
from gateway.upstream.breaker import FAILURES, PAUSE_SECONDS, Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_so_many_failures_and_lets_one_try_after_a_while() -> None:
    clock = Clock()
    breaker = Breaker("far", clock)
    for _ in range(FAILURES):
        breaker.enter()
        breaker.failed()
    assert breaker.state == "open"
    with pytest.raises(Fault) as refused:
        breaker.enter()
    assert refused.value.kind is Kind.UNAVAILABLE
    assert refused.value.retry_after == PAUSE_SECONDS
    clock.now += PAUSE_SECONDS
    assert breaker.state == "half-open"
    breaker.enter()
    with pytest.raises(Fault):
        breaker.enter()  # another tries already
    breaker.left()
    breaker.enter()
    breaker.failed()
    assert breaker.state == "open"
