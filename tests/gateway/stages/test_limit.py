"""Rate limits: sliding windows per principal, tenant, backend or tool."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.contract import Call, Caller, Manifest, Result
from gateway.errors import Fault, Kind
from gateway.stages.limit import MAX_CACHED, CallCosts, Limit, RateRule
from gateway.state.windows import Shortfall, WindowCharge
from tests.gateway.fakes import ALICE, BOB, FakeBackend, Rig, a_call, a_route


async def end(call: Call) -> Result:
    return {}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def per_minute(amount: int, name: str = "calls", **more: Any) -> RateRule:
    return RateRule(name, amount, 60, **more)


async def admit(limit: Limit, *calls: Call) -> list[bool]:
    admitted: list[bool] = []
    for call in calls:
        try:
            await limit(call, end)
            admitted.append(True)
        except Fault as fault:
            admitted.append(fault.kind is not Kind.RATE_LIMITED)
    return admitted


async def test_third_call_within_a_limit_of_two_is_rejected_with_retry_after() -> None:
    limit = Limit([per_minute(2)])
    assert await admit(limit, a_call(), a_call()) == [True, True]
    with pytest.raises(Fault) as caught:
        await limit(a_call(), end)
    assert caught.value.kind is Kind.RATE_LIMITED
    assert caught.value.retryable
    assert caught.value.retry_after is not None
    assert 59 <= caught.value.retry_after <= 60


async def test_each_principal_has_its_own_counter_for_all_its_credentials() -> None:
    limit = Limit([per_minute(1)])
    others = a_call(caller=BOB), a_call(caller=Caller("other", "alice"))
    same = a_call(caller=Caller("acme", "alice", credential="another"))
    assert await admit(limit, a_call(caller=ALICE), *others, same) == [True, True, True, False]


async def test_limit_per_tenant_is_shared_by_its_principals_only() -> None:
    limit = Limit([per_minute(2, per=("tenant",))])
    acme = a_call(caller=ALICE), a_call(caller=BOB), a_call(caller=ALICE)
    assert await admit(limit, *acme, a_call(caller=Caller("other", "alice"))) == [True, True, False, True]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (per_minute(1, backend="lab"), [True, False, False, True, True]),
        (per_minute(1, tool="lab.e*"), [True, False, True, True, True]),
        (per_minute(1, effects=frozenset({3})), [True, True, True, True, True]),
        (per_minute(1, per=("tenant", "tool")), [True, False, True, True, True]),
        (per_minute(1, per=("tenant", "backend")), [True, False, False, True, True]),
        (per_minute(1), [True, False, False, False, False]),
    ],
)
async def test_rule_counts_only_matching_calls(rule: RateRule, expected: list[bool]) -> None:
    def route(namespace: str, name: str) -> Any:
        return a_route(FakeBackend(namespace), namespace=namespace, name=name, canonical=f"{namespace}.{name}")

    echo, other, other_backend = route("lab", "echo"), route("lab", "other"), route("shop", "echo")
    calls = [a_call(route=each) for each in (echo, echo, other, other_backend)]
    assert await admit(Limit([rule]), *calls, a_call(method="tools/list", route=None)) == expected


async def test_call_rejected_by_one_limit_is_not_counted_by_the_others() -> None:
    clock = Clock()
    limit = Limit([per_minute(10, "wide"), RateRule("narrow", 1, 1, per=("tenant",))], clock=clock)
    assert await admit(limit, *[a_call()] * 9) == [True] + [False] * 8
    for _ in range(9):
        clock.now += 1.1
        assert await admit(limit, a_call()) == [True]
    clock.now += 1.1
    with pytest.raises(Fault, match="wide"):
        await limit(a_call(), end)


async def test_rule_with_counts_cost_counts_the_cost_of_calls() -> None:
    rules = [per_minute(10, "cost", counts="cost"), per_minute(100)]
    limit = Limit(rules, CallCosts((("lab.*", 4.0),)))
    assert await admit(limit, *[a_call(route=a_route())] * 3) == [True, True, False]
    assert await admit(limit, *[a_call(method="tools/list", route=None)] * 3) == [True, True, False]


async def test_result_size_is_charged_after_the_call() -> None:
    clock = Clock()
    limit = Limit([per_minute(10, "cost", counts="cost")], CallCosts(per_kilobyte=3.0), clock=clock)

    async def large(call: Call) -> Result:
        call.record.notes["result_bytes"] = 3500
        return {}

    await limit(a_call(), large)  # costs 1, plus 12 for the result
    clock.now += 30
    assert await admit(limit, a_call()) == [False]
    clock.now += 31
    assert await admit(limit, a_call()) == [True]


@pytest.mark.parametrize("amount", [1, 7, 600])
async def test_burst_across_a_window_boundary_does_not_exceed_the_limit(amount: int) -> None:
    clock = Clock()
    limit = Limit([per_minute(amount)], clock=clock)
    times: list[float] = []
    clock.now += 59.9
    for _ in range(8 * amount):
        clock.now += 60.0 / amount / 4 if clock.now > 1061 else 0.0001
        if await admit(limit, a_call()) == [True]:
            times.append(clock.now)
    for begin in times:
        assert sum(begin <= at < begin + 60 for at in times) <= amount
    assert len(times) >= amount


@pytest.mark.parametrize("amount", [1, 2, 600])
async def test_call_after_retry_after_is_admitted(amount: int) -> None:
    clock = Clock()
    limit = Limit([per_minute(amount)], clock=clock)
    for _ in range(amount):
        await limit(a_call(), end)
        clock.now += 0.001
    with pytest.raises(Fault) as caught:
        await limit(a_call(), end)
    assert caught.value.retry_after is not None
    clock.now += caught.value.retry_after
    assert await admit(limit, a_call()) == [True]


async def test_charge_cache_is_bounded_and_eviction_does_not_reset_limits() -> None:
    limit = Limit([per_minute(2)])
    assert await admit(limit, *[a_call()] * 3) == [True, True, False]
    call = a_call()
    for number in range(MAX_CACHED + 5):
        limit._new_charges(a_call(caller=Caller("acme", f"p{number}")) if number < 2 else call, (f"p{number}", "", 0))
    assert len(limit._charges) == MAX_CACHED
    assert await admit(limit, a_call()) == [False]


async def test_rejection_has_rate_limit_headers() -> None:
    rules = [RateRule("calls", 1, 60), RateRule("cost", 500, 3600, per=("tenant",), counts="cost")]
    limit = Limit(rules)
    await limit(a_call(), end)
    with pytest.raises(Fault) as caught:
        await limit(a_call(), end)
    assert dict(caught.value.headers) == {
        b"ratelimit-policy": b'"calls";q=1;w=60, "cost";q=500;w=3600;gatehouse-unit="cost"',
        b"ratelimit": b'"calls";r=0;t=60',
    }


async def test_call_rejected_by_a_later_stage_is_charged() -> None:
    async with Rig(FakeBackend(manifest=Manifest(effects={"echo": 0})), rate="2/minute") as rig:
        for _ in range(2):
            assert (await rig.modern("tools/call", {"name": "nowhere"})).json["error"]["code"] == -32602
        response = await rig.modern("tools/call", {"name": "lab_echo"})
    error = response.json["result"]["structuredContent"]["error"]
    assert error["kind"] == "rate_limited"
    assert int(response.headers["retry-after"]) >= error["retry_after"]
    assert response.headers["ratelimit"].startswith('"calls";r=0;t=')
    assert response.headers["ratelimit-policy"] == '"calls";q=2;w=60'


class UnreachableWindows:
    """Shared windows whose server is unreachable."""

    def spend(self, keys: tuple[str, ...], now: float) -> bool:
        return False

    async def take(self, charges: Any) -> Shortfall | None:
        raise ConnectionError

    async def add(self, charges: Any) -> None:
        raise ConnectionError


async def test_threat_39_without_redis_each_limit_applies_its_on_failure_setting() -> None:
    local = Limit([per_minute(2)], shared=UnreachableWindows())
    assert await admit(local, *[a_call()] * 3) == [True, True, False]
    closed = Limit([per_minute(2), per_minute(9, "strict", on_failure="closed")], shared=UnreachableWindows())
    with pytest.raises(Fault) as caught:
        await closed(a_call(), end)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.details == {"limit": "strict"}
    # A limit for one tool rejects only calls of that tool.
    narrow = Limit(
        [per_minute(2), per_minute(9, "strict", tool="lab.x", on_failure="closed")], shared=UnreachableWindows()
    )
    assert await admit(narrow, a_call()) == [True]


def test_charge_key_starts_with_rule_and_tenant() -> None:
    call = a_call(caller=ALICE)
    (charge,) = Limit([per_minute(1)])._new_charges(call, ("p", "", 0)).charges.charges
    assert isinstance(charge, WindowCharge)
    assert charge.key.split("|")[:2] == ["calls", "acme"]


async def test_long_uris_have_separate_counters_with_short_keys() -> None:
    limit = Limit([per_minute(1, per=("principal", "tool"))])

    def reading(end: str) -> Call:
        uri = "x://" + "y" * 8000 + end
        route = replace(a_route(definition={"name": "x", "uri": uri}), canonical=f"lab:{uri}")
        return a_call("resources/read", {"uri": uri}, route=route)

    assert await admit(limit, reading("a"), reading("b"), reading("a")) == [True, True, False]
    assert all(len(key) < 500 for key in limit.usage("acme"))
    assert len(limit.usage("acme")) == 2
