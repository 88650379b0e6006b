"""What a call leaves in the audit log."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import Call, Caller, Result
from gateway.contract.trace_position import TracePosition
from gateway.errors import Fault, ForeignError, Kind
from gateway.stages.audit import Audit
from gateway.state.audit import COLUMNS
from tests.gateway.fakes import FakeBackend, FakeLog, Rig, a_call, a_route


async def end(call: Call) -> Result:
    return {"content": []}


def raising(exc: BaseException) -> Any:
    async def failing(call: Call) -> Result:
        raise exc

    return failing


async def row(call: Call, then: Any = end) -> dict[str, Any]:
    log = FakeLog()
    try:
        await Audit(log)(call, then)
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt):
            raise
    (kept,) = log.rows
    assert len(kept) == len(COLUMNS)
    return dict(zip(COLUMNS, kept, strict=True))


async def test_a_row_says_who_did_what_and_how_it_ended() -> None:
    call = a_call(
        params={"name": "x", "arguments": {"a": 1}},
        caller=Caller("acme", "alice", credential="key1"),
        route=a_route(effect=1),
    )
    call.record.position = TracePosition("a" * 32, "b" * 16)
    call.record.decision, call.record.policies = "allow", ("p1", "p2")
    kept = await row(call)
    assert (kept["tenant"], kept["principal"], kept["credential"]) == ("acme", "acme/user:alice", "key1")
    assert (kept["correlation_id"], kept["method"], kept["target"]) == ("cid", "tools/call", "lab.echo")
    assert (kept["effect"], kept["decision"], kept["policies"], kept["outcome"]) == (1, "allow", "p1,p2", "ok")
    assert kept["trace_id"] == "a" * 32
    assert kept["duration_us"] >= 0


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (raising(Fault(Kind.DENIED, "x")), "denied"),
        (raising(ForeignError(-32602, "x")), "error:-32602"),
        (raising(asyncio.CancelledError()), "cancelled"),
    ],
)
async def test_a_failure_is_audited_by_its_kind_and_goes_on(then: Any, outcome: str) -> None:
    assert (await row(a_call(), then))["outcome"] == outcome
    with pytest.raises((Fault, ForeignError, asyncio.CancelledError)):
        await Audit(FakeLog())(a_call(), then)


async def test_a_call_that_broke_is_not_audited_as_ok() -> None:
    assert (await row(a_call(), raising(ValueError("x"))))["outcome"] != "ok"


async def test_a_result_with_is_error_is_no_success() -> None:
    async def failed(call: Call) -> Result:
        return {"content": [], "isError": True}

    assert (await row(a_call(), failed))["outcome"] == "tool_error"


async def test_arguments_and_results_never_reach_a_row() -> None:
    secret = "hunter2-hunter2"

    async def tells(call: Call) -> Result:
        return {"content": [{"type": "text", "text": secret}], "structuredContent": {secret: secret}}

    call = a_call(params={"name": "x", "arguments": {"password": secret, secret: 1}, "_meta": {"note": secret}})
    first = await row(call, tells)
    assert secret not in str(first)
    again = await row(a_call(params={"name": "x", "arguments": {secret: 1, "password": secret}}), tells)
    other = await row(a_call(params={"name": "x", "arguments": {"password": "other"}}), tells)
    assert first["arguments_digest"] == again["arguments_digest"] != other["arguments_digest"]
    assert (await row(a_call(params={"name": "x"})))["arguments_digest"] == ""


@pytest.mark.parametrize("odd", ["text", [1], 5, True])
async def test_a_call_whose_parts_are_not_what_they_should_be_has_its_row_too(odd: Any) -> None:
    assert (await row(a_call(params={"name": "x", "arguments": odd, "_meta": odd})))["actor"] == ""


@pytest.mark.parametrize("arguments", [{"n": 10**300}, {"n": -(2**63) - 1}, {"d": {"é\u2028": [None, 1.5]}}])
async def test_any_arguments_can_be_digested(arguments: Any) -> None:
    assert len((await row(a_call(params={"name": "x", "arguments": arguments})))["arguments_digest"]) == 64


async def test_a_name_that_leads_nowhere_is_kept_bounded() -> None:
    assert (await row(a_call(params={"name": "x" * 9999}, route=None)))["target"] == "x" * 256


async def test_a_uri_that_leads_somewhere_is_kept_bounded() -> None:
    uri = "own:" + "x" * 100_000
    route = a_route(canonical=f"lab:{uri}")
    assert len((await row(a_call("resources/read", {"uri": uri}, route=route)))["target"]) <= 4096


async def test_whoever_finds_the_log_full_waits_for_it() -> None:
    log = FakeLog(full=True)
    await Audit(log)(a_call(), end)
    assert (log.flushed, len(log.rows)) == (1, 1)


async def test_without_a_log_the_outcome_is_noted_all_the_same() -> None:
    call = a_call()
    with pytest.raises(Fault):
        await Audit(None)(call, raising(Fault(Kind.TIMEOUT, "x")))
    assert call.record.outcome == "timeout"


async def test_every_method_leaves_one_row() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for method in ("ping", "tools/list"):
            await rig.legacy(session, method)
        for method in ("server/discover", "tools/list"):
            await rig.modern(method)
        await rig.modern("tools/call", {"name": "lab_echo"})
    assert [kept[5] for kept in rig.log.rows] == [
        "initialize",
        "ping",
        "tools/list",
        "server/discover",
        "tools/list",
        "tools/call",
    ]
    assert json.dumps(rig.log.rows)


@pytest.mark.parametrize(("last", "told"), [("validate", True), ("limit", True), ("dispatch", False)])
async def test_a_refusal_on_the_way_is_told_and_a_failure_of_the_backend_is_not(last: str, told: bool) -> None:
    call, fault = a_call(route=a_route()), Fault(Kind.DENIED, "x")
    call.record.stages, call.record.marks = (last,), [0]
    heard: list[Any] = []
    with pytest.raises(Fault):
        await Audit(None, lambda *refused: heard.append(refused))(call, raising(fault))
    assert heard == ([(call, fault)] if told else [])


async def test_who_a_caller_says_to_act_for_is_recorded_and_is_nobodys_identity() -> None:
    call = a_call(params={"name": "x", "_meta": {"actor": "the boss" * 100}}, caller=Caller("acme", "alice"))
    kept = await row(call)
    assert (kept["principal"], kept["actor"]) == ("acme/user:alice", ("the boss" * 100)[:256])


async def test_what_policy_saw_is_recorded_and_who_it_was_where_policy_was_not_asked() -> None:
    call = a_call()
    call.record.context = '{"readonly":true}'
    call.record.notes["approved"] = "said"
    kept = await row(call)
    assert (kept["context"], kept["approved"]) == ('{"readonly":true}', "said")
    early = await row(a_call(caller=Caller("acme", "a", groups=frozenset({"g"}), scopes=frozenset({"s"}))))
    assert json.loads(early["context"]) == {"groups": ["g"], "scopes": ["s"]}


async def test_a_strict_log_is_committed_before_the_answer() -> None:
    log = FakeLog()
    await Audit(log)(a_call(), end)
    assert log.flushed == 0
    await Audit(log, strict=True)(a_call(), end)
    assert (log.flushed, len(log.rows)) == (1, 2)
