"""The circuit breaker of a remote backend: which calls are admitted after failures."""

import asyncio

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, Kind
from gateway.upstream.breaker import FAILURE_THRESHOLD, OPEN_SECONDS
from gateway.upstream.remote import RemoteBackend
from tests.gateway.fakes import SERVER_INFO, a_call, until
from tests.gateway.upstream.fake_transport import FakeTransport


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeBackend:
    """A backend whose server raises `failure` if set, and holds each call of "slow" until the test resolves it."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.held: list[asyncio.Future[Json]] = []
        self.time = FakeClock()
        self.backend = RemoteBackend("far", Manifest(), FakeTransport(self._serve), SERVER_INFO, clock=self.time)

    async def _serve(self, call: Call) -> Json:
        if call.params["name"] == "slow":
            self.held.append(asyncio.get_running_loop().create_future())
            return await self.held[-1]
        if self.failure is not None:
            raise self.failure
        return {"content": []}

    async def call(self, name: str = "quick") -> Json:
        return await self.backend.send(a_call(params={"name": name}, route=None))

    async def start_slow_call(self) -> "asyncio.Task[Json]":
        before = len(self.held)
        task = asyncio.create_task(self.call("slow"))
        await until(lambda: len(self.held) > before)
        return task

    async def is_breaker_open(self) -> bool:
        try:
            await self.call()
        except Fault as fault:
            return "circuit breaker is open" in fault.message
        return False

    async def open_breaker(self) -> None:
        self.failure = Fault(Kind.UNAVAILABLE, "gone")
        for _ in range(FAILURE_THRESHOLD):
            with pytest.raises(Fault, match="gone"):
                await self.call()
        self.failure = None


@pytest.mark.parametrize("error", [TypeError("odd"), KeyError("x"), asyncio.CancelledError()])
async def test_next_trial_call_is_admitted_whatever_the_outcome_of_the_first(error: BaseException) -> None:
    fake = FakeBackend()
    await fake.open_breaker()
    assert await fake.is_breaker_open()
    fake.time.now += OPEN_SECONDS
    fake.failure = error
    with pytest.raises(type(error)):
        await fake.call()
    fake.failure = None
    await fake.call()
    assert fake.backend.health().breaker == "closed"


@pytest.mark.parametrize(
    "outcome", [asyncio.CancelledError(), Fault(Kind.TIMEOUT, "late"), Fault(Kind.RATE_LIMITED, "no")]
)
async def test_end_of_an_older_call_does_not_admit_a_second_trial_call(outcome: BaseException) -> None:
    fake = FakeBackend()
    older_call = await fake.start_slow_call()
    await fake.open_breaker()
    fake.time.now += OPEN_SECONDS
    trial = await fake.start_slow_call()
    fake.held[0].set_exception(outcome)
    await asyncio.gather(older_call, return_exceptions=True)
    fake.time.now += OPEN_SECONDS
    assert await fake.is_breaker_open()
    fake.held[1].set_result({"content": []})
    await trial
    assert not await fake.is_breaker_open()
    assert fake.backend.health().breaker == "closed"
