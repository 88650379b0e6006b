"""What stands in front of a remote server: who may try it after it failed."""

import asyncio

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, Kind
from gateway.upstream.breaker import FAILURES, PAUSE_SECONDS
from gateway.upstream.remote import RemoteBackend
from tests.gateway.fakes import SERVER_INFO, a_call, until
from tests.gateway.upstream.far import FarLink


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Far:
    """A backend whose server fails with `trouble` if there is any, and holds a call named "slow" as long as asked."""

    def __init__(self) -> None:
        self.trouble: BaseException | None = None
        self.held: list[asyncio.Future[Json]] = []
        self.time = Time()
        self.backend = RemoteBackend("far", Manifest(), FarLink(self._serve), SERVER_INFO, clock=self.time)

    async def _serve(self, call: Call) -> Json:
        if call.params["name"] == "slow":
            self.held.append(asyncio.get_running_loop().create_future())
            return await self.held[-1]
        if self.trouble is not None:
            raise self.trouble
        return {"content": []}

    async def call(self, name: str = "quick") -> Json:
        return await self.backend.send(a_call(params={"name": name}, route=None))

    async def held_call(self) -> "asyncio.Task[Json]":
        before = len(self.held)
        task = asyncio.create_task(self.call("slow"))
        await until(lambda: len(self.held) > before)
        return task

    async def is_left_alone(self) -> bool:
        try:
            await self.call()
        except Fault as fault:
            return "left alone" in fault.message
        return False

    async def fail_often(self) -> None:
        self.trouble = Fault(Kind.UNAVAILABLE, "gone")
        for _ in range(FAILURES):
            with pytest.raises(Fault, match="gone"):
                await self.call()
        self.trouble = None


@pytest.mark.parametrize("unforeseen", [TypeError("odd"), KeyError("x"), asyncio.CancelledError()])
async def test_whatever_becomes_of_the_call_that_tries_the_next_may_try(unforeseen: BaseException) -> None:
    far = Far()
    await far.fail_often()
    assert await far.is_left_alone()
    far.time.now += PAUSE_SECONDS
    far.trouble = unforeseen
    with pytest.raises(type(unforeseen)):
        await far.call()
    far.trouble = None
    await far.call()
    assert far.backend.health().breaker == "closed"


@pytest.mark.parametrize("end", [asyncio.CancelledError(), Fault(Kind.TIMEOUT, "late"), Fault(Kind.RATE_LIMITED, "no")])
async def test_an_older_call_that_ends_lets_no_second_one_try(end: BaseException) -> None:
    far = Far()
    older = await far.held_call()
    await far.fail_often()
    far.time.now += PAUSE_SECONDS
    trying = await far.held_call()
    far.held[0].set_exception(end)
    await asyncio.gather(older, return_exceptions=True)
    far.time.now += PAUSE_SECONDS
    assert await far.is_left_alone()
    far.held[1].set_result({"content": []})
    await trying
    assert not await far.is_left_alone()
    assert far.backend.health().breaker == "closed"
