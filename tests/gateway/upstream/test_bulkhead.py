import asyncio

import pytest

from gateway.errors import Fault, Kind
from gateway.upstream.bulkhead import Bulkhead, Capacity


async def _queue_call(bulkhead: Bulkhead, tenant: str) -> "asyncio.Task[None]":
    before = bulkhead.waiting
    task = asyncio.create_task(bulkhead.wait(tenant))
    while bulkhead.waiting == before:
        await asyncio.sleep(0)
    return task


async def test_released_slot_goes_to_the_call_that_waited_longest() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    assert bulkhead.try_acquire("a")
    assert not bulkhead.try_acquire("b")
    first, second = await _queue_call(bulkhead, "b"), await _queue_call(bulkhead, "c")
    bulkhead.release("a")
    await first
    assert not second.done()
    assert (bulkhead.in_flight, bulkhead.waiting) == (1, 1)
    bulkhead.release("b")
    await second
    bulkhead.release("c")
    assert (bulkhead.in_flight, bulkhead.waiting) == (0, 0)


async def test_one_tenant_cannot_take_all_slots_nor_the_whole_queue() -> None:
    bulkhead = Bulkhead("far", Capacity(4, 2, 4))
    assert [bulkhead.try_acquire("greedy") for _ in range(3)] == [True, True, False]
    waiting = [await _queue_call(bulkhead, "greedy") for _ in range(2)]
    with pytest.raises(Fault) as rejected:
        await bulkhead.wait("greedy")
    assert rejected.value.kind is Kind.UNAVAILABLE
    assert rejected.value.retryable
    assert rejected.value.retry_after == 1.0
    assert bulkhead.try_acquire("modest")
    bulkhead.release("greedy")
    await waiting[0]
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    assert bulkhead.waiting == 0


async def test_released_slot_skips_calls_of_a_tenant_at_its_limit() -> None:
    bulkhead = Bulkhead("far", Capacity(3, 2, 4))
    assert [bulkhead.try_acquire(tenant) for tenant in "aab"] == [True, True, True]
    own, other = await _queue_call(bulkhead, "a"), await _queue_call(bulkhead, "b")
    bulkhead.release("b")
    await other
    assert not own.done()
    bulkhead.release("a")
    await own


async def test_call_cancelled_as_it_gets_a_slot_passes_the_slot_on() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    bulkhead.try_acquire("a")
    first, second = await _queue_call(bulkhead, "b"), await _queue_call(bulkhead, "c")
    bulkhead.release("a")
    first.cancel()
    await second
    assert bulkhead.in_flight == 1


async def test_call_that_waits_for_user_input_releases_its_slot_and_always_gets_one_again() -> None:
    bulkhead = Bulkhead("far", Capacity(1, 1, 4))
    bulkhead.try_acquire("a")
    bulkhead.release("a")
    assert bulkhead.try_acquire("b")
    bulkhead.force_acquire("a")
    assert bulkhead.in_flight == 2
    bulkhead.release("a")
    assert not bulkhead.try_acquire("c")
