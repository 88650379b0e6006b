"""So many calls in a window, for each principal."""

import limits
import pytest

from gateway.contract import Call, Caller, Manifest, Result
from gateway.errors import Fault, Kind
from gateway.stages.limit import KEPT, Limit
from tests.gateway.fakes import ALICE, BOB, FakeBackend, Rig, a_call


async def end(call: Call) -> Result:
    return {}


async def test_the_third_call_of_two_is_refused_with_a_retry_time() -> None:
    limit = Limit(limits.parse("2/minute"))
    for _ in range(2):
        await limit(a_call(), end)
    with pytest.raises(Fault) as refused:
        await limit(a_call(), end)
    assert refused.value.kind is Kind.RATE_LIMITED
    assert refused.value.retryable
    assert refused.value.retry_after is not None
    assert refused.value.retry_after >= 1


async def test_each_principal_has_its_own_count_whatever_its_credential() -> None:
    limit = Limit(limits.parse("1/minute"))
    await limit(a_call(caller=ALICE), end)
    await limit(a_call(caller=BOB), end)
    await limit(a_call(caller=Caller("other", "alice")), end)
    with pytest.raises(Fault):
        await limit(a_call(caller=Caller("acme", "alice", credential="another")), end)


async def test_a_call_that_is_refused_later_is_charged() -> None:
    async with Rig(FakeBackend(manifest=Manifest(effects={"echo": 0})), calls="2/minute") as rig:
        for _ in range(2):
            assert (await rig.modern("tools/call", {"name": "nowhere"})).json["error"]["code"] == -32602
        paper = await rig.modern("tools/call", {"name": "lab_echo"})
    assert paper.json["result"]["structuredContent"]["error"]["kind"] == "rate_limited"
    assert int(paper.headers["retry-after"]) >= 1


def calls(limit: Limit, *times: float) -> list[bool]:
    return [limit._hit("p", at) == 0.0 for at in times]


def test_the_window_slides() -> None:
    limit = Limit(limits.parse("4/minute"))
    assert calls(limit, 0, 0, 0, 0, 30) == [True] * 4 + [False]
    # Half of the last window still counts: two of four.
    assert calls(limit, 90, 90, 90) == [True, True, False]
    assert calls(limit, 400, 400, 400, 400, 400) == [True] * 4 + [False]


@pytest.mark.parametrize("rate", ["1/minute", "2/minute", "600/minute"])
def test_whoever_waits_as_long_as_told_is_let_in(rate: str) -> None:
    limit = Limit(limits.parse(rate))
    now = 0.0
    while (wait := limit._hit("p", now)) == 0.0:
        now += 0.001
    assert limit._hit("p", now + wait + 0.001) == 0.0


async def test_no_number_of_principals_fills_the_memory() -> None:
    limit = Limit(limits.parse("2/minute"))
    for number in range(KEPT + 5):
        limit._hit(f"p{number}", 0.0)
    assert len(limit._seen) == KEPT
