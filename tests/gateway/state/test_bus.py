import asyncio

import pytest

from gateway.contract import Bus, Json
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus(clock: Clock) -> Bus:
    return MemoryBus(clock=clock)


def test_workers_have_names_of_their_own() -> None:
    names = {MemoryBus().worker for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in names)


async def test_a_message_reaches_everybody_subscribed_and_nobody_later(bus: Bus) -> None:
    await bus.publish("t", {"n": 0})
    async with bus.subscribe("t") as first, bus.subscribe("t") as second, bus.subscribe("other") as other:
        await bus.publish("t", {"n": 1})
        await bus.publish("other", {"n": 2})
        assert await anext(first) == {"n": 1}
        assert await anext(second) == {"n": 1}
        assert await anext(other) == {"n": 2}


async def test_a_subscriber_that_waits_is_woken(bus: Bus) -> None:
    async with bus.subscribe("t") as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await bus.publish("t", {"n": 1})
        assert await waiting == {"n": 1}


async def test_a_slow_subscriber_loses_the_oldest(bus: Bus) -> None:
    async with bus.subscribe("t") as messages:
        for n in range(1500):
            await bus.publish("t", {"n": n})
        assert await anext(messages) == {"n": 500}


async def test_a_question_is_answered_by_the_topics_handler(bus: Bus) -> None:
    async def double(message: Json) -> Json:
        return {"n": message["n"] * 2}

    bus.answer("double", double)
    assert await bus.ask(bus.worker, "double", {"n": 21}) == {"n": 42}


async def test_a_question_to_nobody_is_unavailable(bus: Bus) -> None:
    async def handler(message: Json) -> Json:
        return message

    bus.answer("t", handler)
    for worker, topic in ((bus.worker, "other"), ("deadbeef", "t")):
        with pytest.raises(Fault) as caught:
            await bus.ask(worker, topic, {})
        assert caught.value.kind is Kind.UNAVAILABLE


async def test_only_our_own_patience_is_a_timeout(bus: Bus) -> None:
    async def never(message: Json) -> Json:
        await asyncio.Event().wait()
        return message

    async def own_timeout(message: Json) -> Json:
        raise TimeoutError("the handler's own")

    bus.answer("never", never)
    bus.answer("own", own_timeout)
    with pytest.raises(Fault) as caught:
        await bus.ask(bus.worker, "never", {}, timeout=0.01)
    assert caught.value.kind is Kind.TIMEOUT
    with pytest.raises(TimeoutError, match="the handler's own"):
        await bus.ask(bus.worker, "own", {})


async def test_a_queue_gives_its_messages_in_order_each_once(bus: Bus) -> None:
    for n in range(3):
        await bus.push("q", {"n": n}, ttl=60)
    assert [await bus.pop("q", 0) for _ in range(4)] == [{"n": 0}, {"n": 1}, {"n": 2}, None]


async def test_a_message_past_its_time_is_not_given(bus: Bus, clock: Clock) -> None:
    await bus.push("q", {"n": "short"}, ttl=5)
    await bus.push("q", {"n": "long"}, ttl=50)
    clock.now += 10
    assert await bus.pop("q", 0) == {"n": "long"}


async def test_whoever_waits_longest_is_served_first(bus: Bus) -> None:
    first, second = (asyncio.create_task(bus.pop("q", 5)) for _ in range(2))
    await asyncio.sleep(0)
    await bus.push("q", {"n": 1}, ttl=60)
    await bus.push("q", {"n": 2}, ttl=60)
    assert await asyncio.gather(first, second) == [{"n": 1}, {"n": 2}]


async def test_a_message_is_not_lost_with_the_one_who_stopped_waiting(bus: Bus) -> None:
    gone, stays = (asyncio.create_task(bus.pop("q", 5)) for _ in range(2))
    await asyncio.sleep(0)
    await bus.push("q", {"n": 1}, ttl=60)
    gone.cancel()
    assert await asyncio.wait_for(stays, 1) == {"n": 1}
    cancelled = asyncio.create_task(bus.pop("q", 5))
    await asyncio.sleep(0)
    cancelled.cancel()
    await bus.push("q", {"n": 2}, ttl=60)
    assert await bus.pop("q", 1) == {"n": 2}


async def test_a_full_queue_refuses_until_its_messages_expire(bus: Bus, clock: Clock) -> None:
    for n in range(256):
        await bus.push("q", {"n": n}, ttl=5)
    with pytest.raises(Fault) as caught:
        await bus.push("q", {"n": "more"}, ttl=5)
    assert caught.value.kind is Kind.UNAVAILABLE
    clock.now += 10
    await bus.push("q", {"n": "later"}, ttl=5)
    assert await bus.pop("q", 0) == {"n": "later"}


async def test_queues_and_leases_that_nobody_came_back_for_are_forgotten(bus: Bus, clock: Clock) -> None:
    for n in range(4096):
        await bus.push(f"q{n}", {}, ttl=5)
        await bus.lease(f"l{n}", ttl=5)
    with pytest.raises(Fault):
        await bus.push("one-more", {}, ttl=5)
    clock.now += 60
    await bus.push("one-more", {}, ttl=5)
    assert len(vars(bus)["_queues"]) == 1
    assert len(vars(bus)["_leases"]) == 0


async def test_a_lease_has_one_holder_until_it_is_released(bus: Bus) -> None:
    lease = await bus.lease("k", ttl=10)
    assert lease is not None
    assert await bus.lease("k", ttl=10) is None
    assert await bus.lease("other", ttl=10) is not None
    await lease.release()
    assert not await lease.renew()
    assert await bus.lease("k", ttl=10) is not None


async def test_a_renewed_lease_is_kept_and_one_not_renewed_is_lost(bus: Bus, clock: Clock) -> None:
    lease = await bus.lease("k", ttl=10)
    assert lease is not None
    clock.now += 8
    assert await lease.renew()
    clock.now += 8
    assert await bus.lease("k", ttl=10) is None
    clock.now += 8
    assert not await lease.renew()
    successor = await bus.lease("k", ttl=10)
    assert successor is not None
    await lease.release()  # no longer its to give up
    assert not await lease.renew()
    assert await successor.renew()
