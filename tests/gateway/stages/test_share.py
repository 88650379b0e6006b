"""Nobody waits behind another tenant's burst."""

import asyncio

import pytest

from gateway.contract import Call, Caller, Result
from gateway.errors import Fault, Kind
from gateway.stages.share import Share, ShareBounds
from tests.gateway.fakes import FakeBackend, a_call, a_route

ALICE, ANN, BOB = Caller("acme", "alice"), Caller("acme", "ann"), Caller("other", "bob")


class Backend:
    """Carries calls out when told to, and remembers how many it had at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.release = asyncio.Semaphore(0)

    async def __call__(self, call: Call) -> Result:
        self.running.append(call.caller.subject)
        self.most = max(self.most, len(self.running))
        try:
            await self.release.acquire()
        finally:
            self.running.remove(call.caller.subject)
        return {}


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_burst_waits_in_its_own_queue_and_nobody_else_does() -> None:
    share, backend = Share(ShareBounds(tenant=4, principal=3, waiting=100)), Backend()
    burst = [asyncio.ensure_future(share(a_call(caller=ALICE), backend)) for _ in range(50)]
    colleague = asyncio.ensure_future(share(a_call(caller=ANN), backend))
    stranger = asyncio.ensure_future(share(a_call(caller=BOB), backend))
    await settle()
    assert sorted(backend.running) == ["alice", "alice", "alice", "ann", "bob"]
    assert share.usage()["tenants"] == {("lab", "acme"): (4, 0), ("lab", "other"): (1, 0)}
    assert share.usage()["principals"][("lab", "acme/user:alice")] == (3, 47)
    for _ in range(60):
        backend.release.release()
    await asyncio.gather(*burst, colleague, stranger)
    assert backend.most == 5
    assert share.usage() == {"tenants": {}, "principals": {}}


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=2)), Backend()
    waiting = [asyncio.ensure_future(share(a_call(), backend)) for _ in range(3)]
    await settle()
    with pytest.raises(Fault) as refused:
        await share(a_call(), backend)
    assert (refused.value.kind, refused.value.retry_after) == (Kind.RATE_LIMITED, 1.0)
    for _ in waiting:
        backend.release.release()
    await asyncio.gather(*waiting)


async def test_whoever_stops_waiting_leaves_no_place_taken() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=9)), Backend()
    calls = [asyncio.ensure_future(share(a_call(), backend)) for _ in range(4)]
    await settle()
    calls[1].cancel()
    backend.release.release()
    await settle()
    calls[2].cancel()  # it has its turn by now
    await settle()
    assert backend.running == ["alice"]
    backend.release.release()
    await calls[3]
    assert share.usage() == {"tenants": {}, "principals": {}}


async def test_each_backend_has_places_of_its_own() -> None:
    share, backend = Share(ShareBounds(tenant=1, principal=1, waiting=0)), Backend()
    one = asyncio.ensure_future(share(a_call(), backend))
    two = asyncio.ensure_future(share(a_call(route=a_route(FakeBackend("shop"))), backend))
    await settle()
    assert backend.most == 2
    backend.release.release()
    backend.release.release()
    await asyncio.gather(one, two)


async def test_a_place_is_given_back_when_the_call_fails() -> None:
    share = Share(ShareBounds(tenant=1, principal=1, waiting=0))

    async def fail(call: Call) -> Result:
        raise Fault(Kind.INTERNAL, "no")

    for _ in range(3):
        with pytest.raises(Fault, match="no"):
            await share(a_call(), fail)
