"""Calls that wait for their client, in one worker."""

import pytest

from gateway.errors import Fault, Kind
from gateway.protocol.multi_round import MAX_OF_TENANT, MAX_PARKED, ParkedCall, ParkedCalls


def parked(parking: ParkedCalls, tenant: str) -> tuple[ParkedCall, str]:
    call = ParkedCall({})
    return call, parking.put(call, object(), tenant)


def waits(parking: ParkedCalls, state: str) -> bool:
    try:
        parking.find(state)
    except Fault:
        return False
    return True


async def test_a_tenant_that_parks_too_many_gives_up_its_own_oldest_and_nobody_elses() -> None:
    parking = ParkedCalls("w1")
    _, others = parked(parking, "beta")
    first, oldest = parked(parking, "acme")
    states = [parked(parking, "acme")[1] for _ in range(MAX_OF_TENANT)]
    assert not waits(parking, oldest)
    assert all(waits(parking, state) for state in (others, *states))
    with pytest.raises(Fault) as gone:
        await first.answers()
    assert gone.value.kind is Kind.UNAVAILABLE
    assert len(parking) == MAX_OF_TENANT + 1


async def test_where_all_are_too_many_whoever_has_most_makes_room() -> None:
    parking = ParkedCalls("w1")
    _, small = parked(parking, "small")
    states = [parked(parking, f"t{number % 5}")[1] for number in range(MAX_PARKED + 10)]
    assert len(parking) == MAX_PARKED
    assert waits(parking, small)
    assert [waits(parking, state) for state in states].index(True) <= 15
    for state in (small, *states):
        parking.forget(state)
    assert (len(parking), parking._tenants) == (0, {})
