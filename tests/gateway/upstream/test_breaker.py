"""Which calls the breakers of a backend admit after failures, and whose failures count for whom."""

import asyncio

import pytest

from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.breaker import FAILURE_THRESHOLD, OPEN_SECONDS, Breakers, ConnectionFailed

RESET = ConnectionFailed("far closed the connection.")
ODD = Fault(Kind.UNAVAILABLE, "far responded with HTTP 302.")


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Server:
    """The breakers of a server and its answer to probes."""

    def __init__(self) -> None:
        self.time = FakeClock()
        self.probes = 0
        self.answer: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        self.breakers = Breakers("far", self._probe, self.time)

    async def _probe(self) -> None:
        self.probes += 1
        if self.answer is not None:
            await self.answer
        if self.failure is not None:
            raise self.failure

    async def is_admitted(self, tenant: str) -> bool:
        try:
            await self.breakers.admit(None, tenant)
        except Fault:
            return False
        return True

    async def fail(self, tenant: str, fault: Fault | None, times: int = FAILURE_THRESHOLD) -> None:
        for _ in range(times):
            before = await self.breakers.admit(None, tenant)
            self.breakers.record_failure(None, tenant, fault, before)


@pytest.mark.parametrize("fault", [None, ODD, RESET], ids=["timeout", "odd response", "reset"])
async def test_failures_of_one_tenant_reject_its_calls_only(fault: Fault | None) -> None:
    server = Server()
    await server.fail("a", fault)
    assert not await server.is_admitted("a")
    assert await server.is_admitted("b")
    assert (server.breakers.state, server.breakers.open_for_tenants) == ("closed", 1)


async def test_rejected_call_gets_the_remaining_time_as_retry_after() -> None:
    server = Server()
    await server.fail("a", None)
    server.time.now += 4
    with pytest.raises(Fault, match="circuit breaker is open") as rejected:
        await server.breakers.admit(None, "a")
    assert (rejected.value.kind, rejected.value.retry_after) == (Kind.UNAVAILABLE, OPEN_SECONDS - 4)


async def test_connection_failures_seen_by_two_tenants_reject_the_calls_of_all() -> None:
    server = Server()
    await server.fail("a", RESET, FAILURE_THRESHOLD - 1)
    await server.fail("b", RESET, 1)
    assert [await server.is_admitted(tenant) for tenant in ("a", "b", "c")] == [False, False, False]
    assert server.breakers.state == "open"


async def test_other_failures_of_many_tenants_do_not_open_the_address() -> None:
    server = Server()
    for tenant in ("a", "b", "c"):
        await server.fail(tenant, ODD, FAILURE_THRESHOLD - 1)
        await server.fail(tenant, None, 1)
    assert await server.is_admitted("d")
    assert server.breakers.state == "closed"


async def test_success_clears_the_failures_of_the_tenant_and_of_the_address() -> None:
    server = Server()
    await server.fail("a", RESET, FAILURE_THRESHOLD - 1)
    server.breakers.record_success(None, "a")
    await server.fail("b", RESET, FAILURE_THRESHOLD - 1)
    assert server.breakers.state == "closed"
    assert await server.is_admitted("a")


async def test_success_of_one_tenant_keeps_the_breaker_of_another_open() -> None:
    server = Server()
    await server.fail("a", None)
    server.breakers.record_success(None, "b")
    assert not await server.is_admitted("a")


async def test_outage_that_breaks_many_calls_counts_once() -> None:
    server = Server()
    before = await server.breakers.admit(None, "a")
    for _ in range(50):
        server.breakers.record_failure(None, "a", RESET, before)
    assert await server.is_admitted("a")


@pytest.mark.parametrize("answer", [None, ForeignError(-32601, "Method not found")])
async def test_one_probe_of_the_gateway_closes_a_half_open_breaker(answer: ForeignError | None) -> None:
    server = Server()
    await server.fail("a", None)
    server.time.now += OPEN_SECONDS
    server.failure = answer
    server.answer = asyncio.get_running_loop().create_future()
    callers = [asyncio.ensure_future(server.is_admitted("a")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.probes == 1
    server.answer.set_result(None)
    assert all(await asyncio.gather(*callers))
    assert (server.probes, server.breakers.is_clear) == (1, True)


@pytest.mark.parametrize("failure", [RESET, TimeoutError()])
async def test_failed_probe_opens_the_address_for_all_tenants(failure: BaseException) -> None:
    server = Server()
    await server.fail("a", None)
    server.time.now += OPEN_SECONDS
    server.failure = failure
    assert not await server.is_admitted("a")
    assert not await server.is_admitted("b")
    assert server.breakers.state == "open"
    server.failure = None
    server.time.now += OPEN_SECONDS
    assert server.breakers.state == "half-open"
    assert await server.is_admitted("b")
    assert await server.is_admitted("a")
    assert server.breakers.is_clear


async def test_call_does_not_wait_longer_than_a_second_for_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.breaker.TRIAL_WAIT_SECONDS", 0.01)
    server = Server()
    await server.fail("a", None)
    server.time.now += OPEN_SECONDS
    server.answer = asyncio.get_running_loop().create_future()
    with pytest.raises(Fault) as rejected:
        await server.breakers.admit(None, "a")
    assert rejected.value.retry_after == 1.0
    assert await server.is_admitted("b")  # only the failing tenant waits for its probe
    server.answer.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await server.is_admitted("a")


async def test_unexpected_exception_in_a_probe_leads_to_another_probe() -> None:
    server = Server()
    await server.fail("a", None)
    server.time.now += OPEN_SECONDS
    server.failure = TypeError("odd")
    assert not await server.is_admitted("a")
    server.failure = None
    assert await server.is_admitted("a")
