"""So much in a window, for each of whatever a rule names."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.contract import Call, Caller, Manifest, Result
from gateway.errors import Fault, Kind
from gateway.stages.limit import KEPT, CallCosts, Limit, RateRule
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


async def admitted(limit: Limit, *calls: Call) -> list[bool]:
    out: list[bool] = []
    for call in calls:
        try:
            await limit(call, end)
            out.append(True)
        except Fault as fault:
            out.append(fault.kind is not Kind.RATE_LIMITED)
    return out


async def test_the_third_call_of_two_is_refused_with_a_retry_time() -> None:
    limit = Limit([per_minute(2)])
    assert await admitted(limit, a_call(), a_call()) == [True, True]
    with pytest.raises(Fault) as refused:
        await limit(a_call(), end)
    assert refused.value.kind is Kind.RATE_LIMITED
    assert refused.value.retryable
    assert refused.value.retry_after is not None
    assert 59 <= refused.value.retry_after <= 60


async def test_each_principal_has_its_own_count_whatever_its_credential() -> None:
    limit = Limit([per_minute(1)])
    others = a_call(caller=BOB), a_call(caller=Caller("other", "alice"))
    same = a_call(caller=Caller("acme", "alice", credential="another"))
    assert await admitted(limit, a_call(caller=ALICE), *others, same) == [True, True, True, False]


async def test_a_tenants_limit_is_shared_by_its_principals_and_by_nobody_else() -> None:
    limit = Limit([per_minute(2, per=("tenant",))])
    acme = a_call(caller=ALICE), a_call(caller=BOB), a_call(caller=ALICE)
    assert await admitted(limit, *acme, a_call(caller=Caller("other", "alice"))) == [True, True, False, True]


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
async def test_a_rule_counts_the_calls_it_names(rule: RateRule, expected: list[bool]) -> None:
    def route(namespace: str, name: str) -> Any:
        return a_route(FakeBackend(namespace), namespace=namespace, name=name, canonical=f"{namespace}.{name}")

    echo, other, elsewhere = route("lab", "echo"), route("lab", "other"), route("shop", "echo")
    calls = [a_call(route=each) for each in (echo, echo, other, elsewhere)]
    assert await admitted(Limit([rule]), *calls, a_call(method="tools/list", route=None)) == expected


async def test_a_call_refused_by_one_limit_takes_nothing_from_the_others() -> None:
    clock = Clock()
    limit = Limit([per_minute(10, "wide"), RateRule("narrow", 1, 1, per=("tenant",))], clock=clock)
    assert await admitted(limit, *[a_call()] * 9) == [True] + [False] * 8
    for _ in range(9):
        clock.now += 1.1
        assert await admitted(limit, a_call()) == [True]
    clock.now += 1.1
    with pytest.raises(Fault, match="wide"):
        await limit(a_call(), end)


async def test_costs_are_counted_where_a_rule_says_so() -> None:
    rules = [per_minute(10, "cost", counts="cost"), per_minute(100)]
    limit = Limit(rules, CallCosts((("lab.*", 4.0),)))
    assert await admitted(limit, *[a_call(route=a_route())] * 3) == [True, True, False]
    assert await admitted(limit, *[a_call(method="tools/list", route=None)] * 3) == [True, True, False]


async def test_what_a_result_weighs_is_charged_afterwards() -> None:
    clock = Clock()
    limit = Limit([per_minute(10, "cost", counts="cost")], CallCosts(per_kilobyte=3.0), clock=clock)

    async def large(call: Call) -> Result:
        call.record.notes["result_bytes"] = 3500
        return {}

    await limit(a_call(), large)  # 1, and 12 more once it is known
    clock.now += 30
    assert await admitted(limit, a_call()) == [False]
    clock.now += 31
    assert await admitted(limit, a_call()) == [True]


@pytest.mark.parametrize("amount", [1, 7, 600])
async def test_a_burst_across_the_edge_of_a_window_admits_no_more_than_the_limit(amount: int) -> None:
    clock = Clock()
    limit = Limit([per_minute(amount)], clock=clock)
    times: list[float] = []
    clock.now += 59.9
    for _ in range(8 * amount):
        clock.now += 60.0 / amount / 4 if clock.now > 1061 else 0.0001
        if await admitted(limit, a_call()) == [True]:
            times.append(clock.now)
    for begin in times:
        assert sum(begin <= at < begin + 60 for at in times) <= amount
    assert len(times) >= amount


@pytest.mark.parametrize("amount", [1, 2, 600])
async def test_whoever_waits_as_long_as_told_is_let_in(amount: int) -> None:
    clock = Clock()
    limit = Limit([per_minute(amount)], clock=clock)
    for _ in range(amount):
        await limit(a_call(), end)
        clock.now += 0.001
    with pytest.raises(Fault) as refused:
        await limit(a_call(), end)
    assert refused.value.retry_after is not None
    clock.now += refused.value.retry_after
    assert await admitted(limit, a_call()) == [True]


async def test_no_number_of_principals_fills_the_memory_and_whoever_owes_is_remembered() -> None:
    limit = Limit([per_minute(2)])
    assert await admitted(limit, *[a_call()] * 3) == [True, True, False]
    call = a_call()
    for number in range(KEPT + 5):
        limit._entry(a_call(caller=Caller("acme", f"p{number}")) if number < 2 else call, (f"p{number}", "", 0))
    assert len(limit._bills) == KEPT
    assert await admitted(limit, a_call()) == [False]


async def test_a_refusal_says_in_its_headers_what_is_left_and_when() -> None:
    rules = [RateRule("calls", 1, 60), RateRule("cost", 500, 3600, per=("tenant",), counts="cost")]
    limit = Limit(rules)
    await limit(a_call(), end)
    with pytest.raises(Fault) as refused:
        await limit(a_call(), end)
    assert dict(refused.value.headers) == {
        b"ratelimit-policy": b'"calls";q=1;w=60, "cost";q=500;w=3600;gatehouse-unit="cost"',
        b"ratelimit": b'"calls";r=0;t=60',
    }


async def test_a_call_that_is_refused_later_is_charged() -> None:
    async with Rig(FakeBackend(manifest=Manifest(effects={"echo": 0})), calls="2/minute") as rig:
        for _ in range(2):
            assert (await rig.modern("tools/call", {"name": "nowhere"})).json["error"]["code"] == -32602
        paper = await rig.modern("tools/call", {"name": "lab_echo"})
    error = paper.json["result"]["structuredContent"]["error"]
    assert error["kind"] == "rate_limited"
    assert int(paper.headers["retry-after"]) >= error["retry_after"]
    assert paper.headers["ratelimit"].startswith('"calls";r=0;t=')
    assert paper.headers["ratelimit-policy"] == '"calls";q=2;w=60'


class Away:
    """Shared windows that nobody can reach."""

    def spend(self, keys: tuple[str, ...], now: float) -> bool:
        return False

    async def take(self, charges: Any) -> Shortfall | None:
        raise ConnectionError

    async def add(self, charges: Any) -> None:
        raise ConnectionError


async def test_threat_39_without_redis_each_limit_does_what_it_says() -> None:
    local = Limit([per_minute(2)], shared=Away())
    assert await admitted(local, *[a_call()] * 3) == [True, True, False]
    closed = Limit([per_minute(2), per_minute(9, "strict", on_failure="closed")], shared=Away())
    with pytest.raises(Fault) as refused:
        await closed(a_call(), end)
    assert refused.value.kind is Kind.UNAVAILABLE
    assert refused.value.details == {"limit": "strict"}
    # What only some calls are counted by refuses only those.
    narrow = Limit([per_minute(2), per_minute(9, "strict", tool="lab.x", on_failure="closed")], shared=Away())
    assert await admitted(narrow, a_call()) == [True]


def test_a_charge_is_keyed_by_tenant_first() -> None:
    call = a_call(caller=ALICE)
    (charge,) = Limit([per_minute(1)])._entry(call, ("p", "", 0)).bill.charges
    assert isinstance(charge, WindowCharge)
    assert charge.key.split("|")[:2] == ["calls", "acme"]


async def test_a_long_uri_is_counted_apart_and_not_kept() -> None:
    limit = Limit([per_minute(1, per=("principal", "tool"))])

    def reading(end: str) -> Call:
        uri = "x://" + "y" * 8000 + end
        route = replace(a_route(definition={"name": "x", "uri": uri}), canonical=f"lab:{uri}")
        return a_call("resources/read", {"uri": uri}, route=route)

    assert await admitted(limit, reading("a"), reading("b"), reading("a")) == [True, True, False]
    assert all(len(key) < 500 for key in limit.usage("acme"))
    assert len(limit.usage("acme")) == 2
