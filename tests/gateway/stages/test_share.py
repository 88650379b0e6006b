"""Fair shares: a burst of one tenant does not delay the others."""

import asyncio

import pytest

from gateway.contract import Call, Caller, Result
from gateway.errors import Fault, Kind
from gateway.stages.share import Share, ShareBounds
from tests.gateway.fakes import FakeBackend, a_call, a_route

ALICE, ANN, BOB = Caller("acme", "alice"), Caller("acme", "ann"), Caller("other", "bob")


class GatedBackend:
    """Completes calls when released, and records the maximum number of concurrent calls."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.max_running = 0
        self.release = asyncio.Semaphore(0)

    async def __call__(self, call: Call) -> Result:
        self.running.append(call.caller.subject)
        self.max_running = max(self.max_running, len(self.running))
        try:
            await self.release.acquire()
        finally:
            self.running.remove(call.caller.subject)
        return {}


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_burst_is_queued_without_delaying_other_principals() -> None:
    share, backend = Share(ShareBounds(tenant=4, principal=3, waiting=100)), GatedBackend()
    burst = [asyncio.ensure_future(share(a_call(caller=ALICE), backend)) for _ in range(50)]
    colleague = asyncio.ensure_future(share(a_call(caller=ANN), backend))
    other_tenant = asyncio.ensure_future(share(a_call(caller=BOB), backend))
    await settle()
    assert sorted(backend.running) == ["alice", "alice", "alice", "ann", "bob"]
    assert share.usage()["tenants"] == {("lab", "acme"): (4, 0), ("lab", "other"): (1, 0)}
    assert share.usage()["principals"][("lab", "acme/user:alice")] == (3, 47)
    for _ in range(60):
        backend.release.release()
    await asyncio.gather(*burst, colleague, other_tenant)
    assert backend.max_running == 5
    assert share.usage() == {"tenants": {}, "principals": {}}


async def test_full_queue_rejects_calls_with_retry_after() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=2)), GatedBackend()
    waiting = [asyncio.ensure_future(share(a_call(), backend)) for _ in range(3)]
    await settle()
    with pytest.raises(Fault) as caught:
        await share(a_call(), backend)
    assert (caught.value.kind, caught.value.retry_after) == (Kind.RATE_LIMITED, 1.0)
    for _ in waiting:
        backend.release.release()
    await asyncio.gather(*waiting)


async def test_cancelled_waiter_frees_its_slot() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=9)), GatedBackend()
    calls = [asyncio.ensure_future(share(a_call(), backend)) for _ in range(4)]
    await settle()
    calls[1].cancel()
    backend.release.release()
    await settle()
    calls[2].cancel()  # it holds a slot by now
    await settle()
    assert backend.running == ["alice"]
    backend.release.release()
    await calls[3]
    assert share.usage() == {"tenants": {}, "principals": {}}


async def test_each_backend_has_its_own_slots() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=0)), GatedBackend()
    one = asyncio.ensure_future(share(a_call(), backend))
    two = asyncio.ensure_future(share(a_call(route=a_route(FakeBackend("shop"))), backend))
    await settle()
    assert backend.max_running == 2
    backend.release.release()
    backend.release.release()
    await asyncio.gather(one, two)


async def test_failed_call_frees_its_slot() -> None:
    share = Share(ShareBounds(tenant=1, principal=1, waiting=0))

    async def fail(call: Call) -> Result:
        raise Fault(Kind.INTERNAL, "no")

    for _ in range(3):
        with pytest.raises(Fault, match="no"):
            await share(a_call(), fail)
