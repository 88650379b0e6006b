import asyncio

import pytest

from gateway.errors import Fault, Kind
from gateway.upstream.bulkhead import Bulkhead, Capacity


async def _queued(bulkhead: Bulkhead, tenant: str) -> "asyncio.Task[None]":
    before = bulkhead.waiting
    task = asyncio.create_task(bulkhead.wait(tenant))
    while bulkhead.waiting == before:
        await asyncio.sleep(0)
    return task


async def test_a_place_that_is_left_goes_to_whoever_waited_longest() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    assert bulkhead.take("a")
    assert not bulkhead.take("b")
    first, second = await _queued(bulkhead, "b"), await _queued(bulkhead, "c")
    bulkhead.leave("a")
    await first
    assert not second.done()
    assert (bulkhead.in_flight, bulkhead.waiting) == (1, 1)
    bulkhead.leave("b")
    await second
    bulkhead.leave("c")
    assert (bulkhead.in_flight, bulkhead.waiting) == (0, 0)


async def test_one_tenant_cannot_take_all_places_nor_the_whole_queue() -> None:
    bulkhead = Bulkhead("far", Capacity(4, 2, 4))
    assert [bulkhead.take("greedy") for _ in range(3)] == [True, True, False]
    waiting = [await _queued(bulkhead, "greedy") for _ in range(2)]
    with pytest.raises(Fault) as full:
        await bulkhead.wait("greedy")
    assert full.value.kind is Kind.UNAVAILABLE
    assert full.value.retryable
    assert full.value.retry_after == 1.0
    assert bulkhead.take("modest")
    bulkhead.leave("greedy")
    await waiting[0]
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    assert bulkhead.waiting == 0


async def test_a_freed_place_skips_those_whose_tenant_has_its_share() -> None:
    bulkhead = Bulkhead("far", Capacity(3, 2, 4))
    assert [bulkhead.take(tenant) for tenant in "aab"] == [True, True, True]
    mine, theirs = await _queued(bulkhead, "a"), await _queued(bulkhead, "b")
    bulkhead.leave("b")
    await theirs
    assert not mine.done()
    bulkhead.leave("a")
    await mine


async def test_whoever_gives_up_just_as_its_turn_comes_hands_the_place_on() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    bulkhead.take("a")
    first, second = await _queued(bulkhead, "b"), await _queued(bulkhead, "c")
    bulkhead.leave("a")
    first.cancel()
    await second
    assert bulkhead.in_flight == 1


async def test_a_call_that_waits_for_a_person_leaves_its_place_meanwhile_and_is_sure_of_it_after() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    bulkhead.take("a")
    bulkhead.leave("a")
    assert bulkhead.take("b")
    bulkhead.step_in("a")
    assert bulkhead.in_flight == 2
    bulkhead.leave("a")
    assert not bulkhead.take("c")
