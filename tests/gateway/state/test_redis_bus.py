"""The Redis bus with several workers and with a Redis that stops."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.state.redis_bus import RedisBus
from tests.gateway.fakes import until
from tests.servers import Valkey


@pytest.fixture
async def pair(valkey_url: str, prefix: str) -> AsyncIterator[tuple[RedisBus, RedisBus]]:
    here, there = await RedisBus.open(valkey_url, prefix), await RedisBus.open(valkey_url, prefix)
    yield here, there
    await here.close()
    await there.close()


async def test_request_is_answered_by_another_worker(pair: tuple[RedisBus, RedisBus]) -> None:
    here, there = pair

    async def double(message: Json) -> Json:
        return {"n": message["n"] * 2}

    async def refuse(message: Json) -> Json:
        raise Fault(Kind.DENIED, "Denied.")

    async def fail(message: Json) -> Json:
        raise ZeroDivisionError

    async def never(message: Json) -> Json:
        return await asyncio.Event().wait() and message

    for topic, handler in (("double", double), ("refuse", refuse), ("fail", fail), ("never", never)):
        there.respond(topic, handler)
    assert await here.request(there.worker, "double", {"n": 21}) == {"n": 42}
    for topic, kind in (("refuse", Kind.DENIED), ("fail", Kind.INTERNAL), ("unknown", Kind.UNAVAILABLE)):
        with pytest.raises(Fault) as caught:
            await here.request(there.worker, topic, {})
        assert caught.value.kind is kind
    with pytest.raises(Fault) as caught:
        await here.request(there.worker, "never", {}, timeout=0.05)
    assert caught.value.kind is Kind.TIMEOUT


async def test_request_to_a_stopped_worker_fails_immediately(valkey_url: str, prefix: str) -> None:
    here, there = await RedisBus.open(valkey_url, prefix), await RedisBus.open(valkey_url, prefix)
    await there.close()
    with pytest.raises(Fault) as caught:
        async with asyncio.timeout(2):
            await here.request(there.worker, "any", {}, timeout=30)
    assert caught.value.kind is Kind.UNAVAILABLE
    await here.close()


async def test_messages_queues_and_leases_are_shared_by_workers(pair: tuple[RedisBus, RedisBus]) -> None:
    here, there = pair
    async with here.subscribe("t") as messages:
        await there.publish("t", {"n": 1})
        assert await asyncio.wait_for(anext(messages), 5) == {"n": 1}
    waiting = asyncio.create_task(here.pop("q", 5))
    await there.push("q", {"n": 2}, ttl=5)
    assert await waiting == {"n": 2}
    lease = await here.lease("k", ttl=30)
    assert lease is not None
    assert await there.lease("k", ttl=30) is None
    await lease.release()
    assert await there.lease("k", ttl=30) is not None


async def test_each_message_is_delivered_to_exactly_one_popper(pair: tuple[RedisBus, RedisBus]) -> None:
    here, there = pair
    poppers = [asyncio.create_task(bus.pop("q", 10)) for bus in (here, there) for _ in range(20)]
    for n in range(40):
        await here.push("q", {"n": n}, ttl=30)
    messages_popped = await asyncio.gather(*poppers)
    assert sorted(message["n"] for message in messages_popped if message) == list(range(40))


async def test_bus_recovers_after_redis_was_killed(valkey: Valkey, prefix: str) -> None:
    here, there = await RedisBus.open(valkey.url, prefix), await RedisBus.open(valkey.url, prefix)

    async def echo(message: Json) -> Json:
        return message

    there.respond("echo", echo)
    async with here.subscribe("t") as messages:
        popping = asyncio.create_task(here.pop("q", 30))
        await until(lambda: vars(vars(here)["_queues"])["_waiting"])
        valkey.kill()
        with pytest.raises(Fault) as caught:
            await here.lease("k", 5)
        assert caught.value.kind is Kind.UNAVAILABLE
        valkey.start()
        received = asyncio.ensure_future(anext(messages))
        async with asyncio.timeout(15):
            while not received.done():
                await _ignoring_faults(there.publish("t", {"n": 1}))
                await asyncio.sleep(0.05)
            while await _ignoring_faults(here.request(there.worker, "echo", {"n": 2})) != {"n": 2}:
                await asyncio.sleep(0.05)
            await there.push("q", {"n": 3}, 30)
            assert await popping == {"n": 3}
    await here.close()
    await there.close()


async def test_unreachable_redis_is_a_fault_without_the_password() -> None:
    with pytest.raises(Fault) as caught:
        await RedisBus.open("redis://user:secret@127.0.0.1:1/0")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "secret" not in caught.value.message


async def _ignoring_faults(work: object) -> object:
    try:
        return await work  # type: ignore[misc]
    except Fault:
        return None
