import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.state.redis_bus import RedisBus
from tests.gateway.fakes import until


class Clock:
    """Manual clock of the memory bus. The tests with Redis use `RealClock`, with shorter units."""

    unit = 1.0

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def advance(self, units: float) -> None:
        self.now += units


class RealClock(Clock):
    unit = 0.12

    async def advance(self, units: float) -> None:
        await asyncio.sleep(units * self.unit)


AnyBus = MemoryBus | RedisBus


@pytest.fixture(params=["memory", "redis"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def clock(engine: str) -> Clock:
    return Clock() if engine == "memory" else RealClock()


@pytest.fixture
async def bus(engine: str, clock: Clock, request: pytest.FixtureRequest) -> AsyncIterator[AnyBus]:
    if engine == "memory":
        yield MemoryBus(clock=clock)
        return
    bus = await RedisBus.open(request.getfixturevalue("valkey_url"), request.getfixturevalue("prefix"))
    yield bus
    await bus.close()


async def wait_for_poppers(bus: AnyBus, poppers: int = 0) -> None:
    """Wait until started tasks are waiting: `poppers` of them for the queue `q`."""

    def waiting() -> int:
        return sum(not each.done() for each in vars(vars(bus)["_queues"])["_waiting"].get("q", ()))

    await asyncio.sleep(0)
    if isinstance(bus, RedisBus):
        await until(lambda: waiting() == poppers)


def test_each_worker_has_a_unique_name() -> None:
    names = {MemoryBus().worker for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in names)


async def test_message_reaches_current_subscribers_only(bus: AnyBus) -> None:
    await bus.publish("t", {"n": 0})
    async with bus.subscribe("t") as first, bus.subscribe("t") as second, bus.subscribe("other") as other:
        await bus.publish("t", {"n": 1})
        await bus.publish("other", {"n": 2})
        assert await anext(first) == {"n": 1}
        assert await anext(second) == {"n": 1}
        assert await anext(other) == {"n": 2}


async def test_waiting_subscriber_receives_published_message(bus: AnyBus) -> None:
    async with bus.subscribe("t") as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await wait_for_poppers(bus)
        await bus.publish("t", {"n": 1})
        assert await waiting == {"n": 1}


async def test_slow_subscriber_loses_oldest_messages(bus: AnyBus) -> None:
    async with bus.subscribe("t") as messages:
        for n in range(1500):
            await bus.publish("t", {"n": n})
        await bus.publish("t", {"n": "last"})
        async with asyncio.timeout(5):
            while vars(messages)["_messages"][-1] != {"n": "last"}:
                await asyncio.sleep(0.01)
        assert await anext(messages) == {"n": 501}


async def test_request_is_answered_by_the_handler_of_its_topic(bus: AnyBus) -> None:
    async def double(message: Json) -> Json:
        return {"n": message["n"] * 2}

    bus.respond("double", double)
    assert await bus.request(bus.worker, "double", {"n": 21}) == {"n": 42}


async def test_request_without_handler_is_unavailable(bus: AnyBus) -> None:
    async def handler(message: Json) -> Json:
        return message

    bus.respond("t", handler)
    for worker, topic in ((bus.worker, "other"), ("deadbeef", "t")):
        with pytest.raises(Fault) as caught:
            await bus.request(worker, topic, {})
        assert caught.value.kind is Kind.UNAVAILABLE


async def test_only_the_request_timeout_is_reported_as_timeout(bus: AnyBus) -> None:
    async def never(message: Json) -> Json:
        await asyncio.Event().wait()
        return message

    async def own_timeout(message: Json) -> Json:
        raise TimeoutError("raised by the handler")

    bus.respond("never", never)
    bus.respond("own", own_timeout)
    with pytest.raises(Fault) as caught:
        await bus.request(bus.worker, "never", {}, timeout=0.01)
    assert caught.value.kind is Kind.TIMEOUT
    with pytest.raises(TimeoutError, match="raised by the handler"):
        await bus.request(bus.worker, "own", {})


async def test_queue_delivers_each_message_once_in_order(bus: AnyBus) -> None:
    for n in range(3):
        await bus.push("q", {"n": n}, ttl=60)
    assert [await bus.pop("q", 0) for _ in range(4)] == [{"n": 0}, {"n": 1}, {"n": 2}, None]


async def test_expired_message_is_not_delivered(bus: AnyBus, clock: Clock) -> None:
    await bus.push("q", {"n": "short"}, ttl=5 * clock.unit)
    await bus.push("q", {"n": "long"}, ttl=50 * clock.unit)
    await clock.advance(10)
    assert await bus.pop("q", 0) == {"n": "long"}


async def test_longest_waiting_popper_is_served_first(bus: AnyBus) -> None:
    first, second = (asyncio.create_task(bus.pop("q", 5)) for _ in range(2))
    await wait_for_poppers(bus, 2)
    await bus.push("q", {"n": 1}, ttl=60)
    await bus.push("q", {"n": 2}, ttl=60)
    assert await asyncio.gather(first, second) == [{"n": 1}, {"n": 2}]


async def test_message_for_cancelled_popper_goes_to_the_next(bus: AnyBus) -> None:
    first, second = (asyncio.create_task(bus.pop("q", 5)) for _ in range(2))
    await wait_for_poppers(bus, 2)
    await bus.push("q", {"n": 1}, ttl=60)
    first.cancel()
    assert await asyncio.wait_for(second, 1) == {"n": 1}
    cancelled = asyncio.create_task(bus.pop("q", 5))
    await wait_for_poppers(bus, 1)
    cancelled.cancel()
    await bus.push("q", {"n": 2}, ttl=60)
    assert await bus.pop("q", 1) == {"n": 2}


async def test_full_queue_rejects_messages_until_some_expire(bus: AnyBus, clock: Clock) -> None:
    for n in range(256):
        await bus.push("q", {"n": n}, ttl=15 * clock.unit)
    with pytest.raises(Fault) as caught:
        await bus.push("q", {"n": "more"}, ttl=15 * clock.unit)
    assert caught.value.kind is Kind.UNAVAILABLE
    await clock.advance(20)
    await bus.push("q", {"n": "later"}, ttl=15 * clock.unit)
    assert await bus.pop("q", 0) == {"n": "later"}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_expired_queues_and_leases_are_removed(bus: AnyBus, clock: Clock) -> None:
    for n in range(4096):
        await bus.push(f"q{n}", {}, ttl=5 * clock.unit)
        await bus.lease(f"l{n}", ttl=5 * clock.unit)
    with pytest.raises(Fault):
        await bus.push("one-more", {}, ttl=5 * clock.unit)
    await clock.advance(60)
    await bus.push("one-more", {}, ttl=5 * clock.unit)
    assert len(vars(bus)["_queues"]) == 1
    assert len(vars(bus)["_leases"]) == 0


async def test_lease_has_one_holder_until_released(bus: AnyBus, clock: Clock) -> None:
    lease = await bus.lease("k", ttl=10 * clock.unit)
    assert lease is not None
    assert await bus.lease("k", ttl=10 * clock.unit) is None
    assert await bus.lease("other", ttl=10 * clock.unit) is not None
    await lease.release()
    assert not await lease.renew()
    assert await bus.lease("k", ttl=10 * clock.unit) is not None


async def test_lease_is_held_while_renewed_and_expires_otherwise(bus: AnyBus, clock: Clock) -> None:
    lease = await bus.lease("k", ttl=10 * clock.unit)
    assert lease is not None
    await clock.advance(8)
    assert await lease.renew()
    await clock.advance(8)
    assert await bus.lease("k", ttl=10 * clock.unit) is None
    await clock.advance(8)
    assert not await lease.renew()
    successor = await bus.lease("k", ttl=10 * clock.unit)
    assert successor is not None
    await lease.release()  # the lease belongs to its successor now
    assert not await lease.renew()
    assert await successor.renew()


async def test_later_holder_has_a_greater_fence_number(bus: AnyBus, clock: Clock) -> None:
    first = await bus.lease("k", ttl=1 * clock.unit)
    assert first is not None
    await clock.advance(2)
    second = await bus.lease("k", ttl=10 * clock.unit)
    assert second is not None
    assert second.fence > first.fence
