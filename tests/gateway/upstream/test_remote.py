"""How the outcome of a call reaches the breakers of a remote backend."""

import asyncio

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.breaker import FAILURE_THRESHOLD, OPEN_SECONDS, ConnectionFailed
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
        self.served = 0
        self.time = FakeClock()
        self.transport = FakeTransport(self._serve)
        self.backend = RemoteBackend("far", Manifest(), self.transport, SERVER_INFO, clock=self.time)

    async def _serve(self, call: Call) -> Json:
        self.served += 1
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
        self.failure = ConnectionFailed("gone")
        for _ in range(FAILURE_THRESHOLD):
            with pytest.raises(Fault, match="gone"):
                await self.call()
        self.failure = None


async def test_half_open_breaker_is_tried_by_a_probe_and_never_by_a_call() -> None:
    fake = FakeBackend()
    await fake.open_breaker()
    assert await fake.is_breaker_open()
    fake.time.now += OPEN_SECONDS
    fake.transport.probe_failure = ConnectionFailed("still gone")
    served = fake.served
    assert await fake.is_breaker_open()
    assert (fake.transport.probes, fake.served) == (1, served)
    assert fake.backend.health().state == "down"


@pytest.mark.parametrize(
    "outcome", [asyncio.CancelledError(), Fault(Kind.RATE_LIMITED, "no"), ForeignError(-32602, "wrong")]
)
async def test_outcome_that_is_no_failure_of_the_server_does_not_count(outcome: BaseException) -> None:
    fake = FakeBackend()
    fake.failure = outcome
    for _ in range(2 * FAILURE_THRESHOLD):
        with pytest.raises(type(outcome)):
            await fake.call()
    assert fake.backend.health().breaker == "closed"
    fake.failure = None
    assert not await fake.is_breaker_open()


async def test_late_success_of_an_older_call_closes_the_breaker() -> None:
    fake = FakeBackend()
    older_call = await fake.start_slow_call()
    await fake.open_breaker()
    assert await fake.is_breaker_open()
    fake.held[0].set_result({"content": []})
    await older_call
    assert not await fake.is_breaker_open()
    assert fake.backend.health().open_tenant_breakers == 0


async def test_failed_calls_have_the_eras_probed_at_most_every_five_seconds() -> None:
    fake = FakeBackend()
    invalidations: list[float] = []
    fake.transport.invalidate_eras = lambda: invalidations.append(fake.time.now)
    fake.failure = Fault(Kind.UNAVAILABLE, "odd")
    for _ in range(3):
        with pytest.raises(Fault):
            await fake.call()
    fake.time.now += 5
    with pytest.raises(Fault):
        await fake.call()
    assert invalidations == [100.0, 105.0]
