"""Deadlines: only the gateway's own deadline raises TIMEOUT, and waiting for the user does not count."""

import asyncio

import pytest

from gateway.contract import Call, Json, Manifest, Result
from gateway.errors import Fault, Kind
from gateway.stages.deadline import Deadline
from tests.gateway.fakes import Clock, FakeBackend, FakeWire, Rig, a_call, a_route, until


async def forever(call: Call) -> Result:
    await asyncio.Event().wait()
    return {}


def begin(call: Call, end: object = forever) -> "asyncio.Task[Result]":
    return asyncio.create_task(Deadline()(call, end))  # type: ignore[arg-type]


async def wait_until_started(task: "asyncio.Task[Result]") -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_call_past_its_deadline_is_cancelled_with_timeout() -> None:
    clock = Clock()
    stopped = asyncio.Event()

    async def end(call: Call) -> Result:
        try:
            return await forever(call)
        finally:
            stopped.set()

    task = begin(a_call(route=a_route(timeout=30)), end)
    await wait_until_started(task)
    await clock.forward(29)
    assert not task.done()
    await clock.forward(2)
    with pytest.raises(Fault) as caught:
        await task
    assert (caught.value.kind, caught.value.message) == (Kind.TIMEOUT, "No answer within 30 s.")
    assert stopped.is_set()
    assert task.cancelling() == 0


async def test_timeout_error_of_the_backend_is_not_converted() -> None:
    async def end(call: Call) -> Result:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await Deadline()(a_call(route=a_route(timeout=30)), end)


async def test_external_cancellation_is_not_converted() -> None:
    task = begin(a_call(route=a_route(timeout=30)))
    await wait_until_started(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_external_cancellation_takes_precedence_over_a_simultaneous_deadline() -> None:
    clock = Clock()
    task = begin(a_call(route=a_route(timeout=30)))
    await wait_until_started(task)
    clock._offset += 31
    asyncio.get_running_loop().call_later(0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_time_spent_waiting_for_the_user_does_not_count() -> None:
    clock, wire = Clock(), FakeWire()
    task = begin(a_call(route=a_route(timeout=30), wire=wire))
    await wait_until_started(task)
    wire.waited = 100
    await clock.forward(120)
    assert not task.done()
    await clock.forward(9)
    assert not task.done()
    await clock.forward(2)
    with pytest.raises(Fault):
        await task


def count_timers() -> int:
    return len([timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()])  # type: ignore[attr-defined]


async def test_calls_share_one_timer_that_ends_with_them() -> None:
    async def end(call: Call) -> Result:
        return {"a": 1}

    clock, deadline, before = Clock(), Deadline(), count_timers()
    for _ in range(3):
        assert await deadline(a_call(route=a_route(timeout=30)), end) == {"a": 1}
    assert count_timers() == before + 1
    await clock.forward(1)
    assert count_timers() == before


async def test_short_deadline_is_not_delayed_by_a_long_one() -> None:
    clock, deadline = Clock(), Deadline()
    long = asyncio.create_task(deadline(a_call(route=a_route(timeout=300)), forever))
    short = asyncio.create_task(deadline(a_call(route=a_route(timeout=2)), forever))
    await wait_until_started(short)
    await clock.forward(3)
    with pytest.raises(Fault):
        await short
    assert not long.done()
    long.cancel()


async def test_timeout_has_stage_deadline_and_origin_gateway() -> None:
    clock = Clock()

    async def answer(call: Call) -> Json:
        return await forever(call)  # type: ignore[return-value]

    backend = FakeBackend(answer=answer, manifest=Manifest(error_style="protocol", effects={"echo": 0}))
    async with Rig(backend) as rig:
        response, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await until(lambda: backend.calls)
        await clock.forward(61)
        await task
    data = response.json["error"]["data"]
    assert (data["kind"], data["stage"], data["origin"]) == ("timeout", "deadline", "gateway")
