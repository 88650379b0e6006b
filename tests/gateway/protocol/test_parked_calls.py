"""The limits of parked calls in one worker."""

import pytest

from gateway.errors import Fault, Kind
from gateway.protocol.multi_round import MAX_PARKED, MAX_PARKED_PER_TENANT, ParkedCall, ParkedCalls


def park(parked_calls: ParkedCalls, tenant: str) -> tuple[ParkedCall, str]:
    call = ParkedCall({})
    return call, parked_calls.add(call, object(), tenant)


def is_parked(parked_calls: ParkedCalls, state: str) -> bool:
    try:
        parked_calls.find(state)
    except Fault:
        return False
    return True


async def test_tenant_above_its_limit_loses_its_own_oldest_parked_call() -> None:
    parked_calls = ParkedCalls("w1")
    _, others = park(parked_calls, "beta")
    first, oldest = park(parked_calls, "acme")
    states = [park(parked_calls, "acme")[1] for _ in range(MAX_PARKED_PER_TENANT)]
    assert not is_parked(parked_calls, oldest)
    assert all(is_parked(parked_calls, state) for state in (others, *states))
    with pytest.raises(Fault) as evicted:
        await first.wait_for_answers()
    assert evicted.value.kind is Kind.UNAVAILABLE
    assert len(parked_calls) == MAX_PARKED_PER_TENANT + 1


async def test_above_the_total_limit_the_tenant_with_most_calls_loses_its_oldest() -> None:
    parked_calls = ParkedCalls("w1")
    _, small = park(parked_calls, "small")
    states = [park(parked_calls, f"t{number % 5}")[1] for number in range(MAX_PARKED + 10)]
    assert len(parked_calls) == MAX_PARKED
    assert is_parked(parked_calls, small)
    assert [is_parked(parked_calls, state) for state in states].index(True) <= 15
    for state in (small, *states):
        parked_calls.remove(state)
    assert (len(parked_calls), parked_calls._tenants) == (0, {})
