"""The audit row of a call."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import Call, Caller, Result
from gateway.contract.trace_position import TracePosition
from gateway.errors import Fault, ForeignError, Kind
from gateway.stages.audit import Audit
from gateway.state.audit import COLUMNS
from tests.gateway.fakes import FakeAuditLog, FakeBackend, Rig, a_call, a_route


async def end(call: Call) -> Result:
    return {"content": []}


def raising(exc: BaseException) -> Any:
    async def failing(call: Call) -> Result:
        raise exc

    return failing


async def audit_row(call: Call, call_next: Any = end) -> dict[str, Any]:
    log = FakeAuditLog()
    try:
        await Audit(log)(call, call_next)
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt):
            raise
    (row,) = log.rows
    assert len(row) == len(COLUMNS)
    return dict(zip(COLUMNS, row, strict=True))


async def test_row_contains_principal_target_decision_and_outcome() -> None:
    call = a_call(
        params={"name": "x", "arguments": {"a": 1}},
        caller=Caller("acme", "alice", credential="key1"),
        route=a_route(effect=1),
    )
    call.record.position = TracePosition("a" * 32, "b" * 16)
    call.record.decision, call.record.policies = "allow", ("p1", "p2")
    row = await audit_row(call)
    assert (row["tenant"], row["principal"], row["credential"]) == ("acme", "acme/user:alice", "key1")
    assert (row["correlation_id"], row["method"], row["target"]) == ("cid", "tools/call", "lab.echo")
    assert (row["effect"], row["decision"], row["policies"], row["outcome"]) == (1, "allow", "p1,p2", "ok")
    assert row["trace_id"] == "a" * 32
    assert row["duration_us"] >= 0


@pytest.mark.parametrize(
    ("call_next", "outcome"),
    [
        (raising(Fault(Kind.DENIED, "x")), "denied"),
        (raising(ForeignError(-32602, "x")), "error:-32602"),
        (raising(asyncio.CancelledError()), "cancelled"),
    ],
)
async def test_failure_is_audited_with_its_kind_and_raised(call_next: Any, outcome: str) -> None:
    assert (await audit_row(a_call(), call_next))["outcome"] == outcome
    with pytest.raises((Fault, ForeignError, asyncio.CancelledError)):
        await Audit(FakeAuditLog())(a_call(), call_next)


async def test_call_with_unexpected_exception_is_not_audited_as_ok() -> None:
    assert (await audit_row(a_call(), raising(ValueError("x"))))["outcome"] != "ok"


async def test_result_with_is_error_is_audited_as_tool_error() -> None:
    async def failed(call: Call) -> Result:
        return {"content": [], "isError": True}

    assert (await audit_row(a_call(), failed))["outcome"] == "tool_error"


async def test_row_contains_a_digest_but_no_arguments_or_results() -> None:
    secret = "hunter2-hunter2"

    async def answer(call: Call) -> Result:
        return {"content": [{"type": "text", "text": secret}], "structuredContent": {secret: secret}}

    call = a_call(params={"name": "x", "arguments": {"password": secret, secret: 1}, "_meta": {"note": secret}})
    first = await audit_row(call, answer)
    assert secret not in str(first)
    again = await audit_row(a_call(params={"name": "x", "arguments": {secret: 1, "password": secret}}), answer)
    other = await audit_row(a_call(params={"name": "x", "arguments": {"password": "other"}}), answer)
    assert first["arguments_digest"] == again["arguments_digest"] != other["arguments_digest"]
    assert (await audit_row(a_call(params={"name": "x"})))["arguments_digest"] == ""


@pytest.mark.parametrize("odd", ["text", [1], 5, True])
async def test_call_with_malformed_params_is_audited(odd: Any) -> None:
    assert (await audit_row(a_call(params={"name": "x", "arguments": odd, "_meta": odd})))["actor"] == ""


@pytest.mark.parametrize("arguments", [{"n": 10**300}, {"n": -(2**63) - 1}, {"d": {"é\u2028": [None, 1.5]}}])
async def test_digest_exists_for_any_arguments(arguments: Any) -> None:
    assert len((await audit_row(a_call(params={"name": "x", "arguments": arguments})))["arguments_digest"]) == 64


async def test_unknown_name_is_truncated_in_the_row() -> None:
    assert (await audit_row(a_call(params={"name": "x" * 9999}, route=None)))["target"] == "x" * 256


async def test_known_uri_is_truncated_in_the_row() -> None:
    uri = "own:" + "x" * 100_000
    route = a_route(canonical=f"lab:{uri}")
    assert len((await audit_row(a_call("resources/read", {"uri": uri}, route=route)))["target"]) <= 4096


async def test_call_waits_for_a_flush_if_the_log_is_full() -> None:
    log = FakeAuditLog(full=True)
    await Audit(log)(a_call(), end)
    assert (log.flushed, len(log.rows)) == (1, 1)


async def test_outcome_is_recorded_without_a_log() -> None:
    call = a_call()
    with pytest.raises(Fault):
        await Audit(None)(call, raising(Fault(Kind.TIMEOUT, "x")))
    assert call.record.outcome == "timeout"


async def test_every_method_writes_one_row() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for method in ("ping", "tools/list"):
            await rig.legacy(session, method)
        for method in ("server/discover", "tools/list"):
            await rig.modern(method)
        await rig.modern("tools/call", {"name": "lab_echo"})
    assert [row[5] for row in rig.audit_log.rows] == [
        "initialize",
        "ping",
        "tools/list",
        "server/discover",
        "tools/list",
        "tools/call",
    ]
    assert json.dumps(rig.audit_log.rows)


@pytest.mark.parametrize(("last", "is_reported"), [("validate", True), ("limit", True), ("dispatch", False)])
async def test_rejection_by_a_stage_is_reported_and_failure_of_the_backend_is_not(last: str, is_reported: bool) -> None:
    call, fault = a_call(route=a_route()), Fault(Kind.DENIED, "x")
    call.record.stages, call.record.entered_at = (last,), [0]
    reported: list[Any] = []
    with pytest.raises(Fault):
        await Audit(None, lambda *call_and_fault: reported.append(call_and_fault))(call, raising(fault))
    assert reported == ([(call, fault)] if is_reported else [])


async def test_actor_claimed_in_meta_is_recorded_but_does_not_change_the_principal() -> None:
    call = a_call(params={"name": "x", "_meta": {"actor": "the boss" * 100}}, caller=Caller("acme", "alice"))
    row = await audit_row(call)
    assert (row["principal"], row["actor"]) == ("acme/user:alice", ("the boss" * 100)[:256])


async def test_policy_context_is_recorded_else_groups_and_scopes_of_the_caller() -> None:
    call = a_call()
    call.record.context = '{"readonly":true}'
    call.record.notes["approved"] = "said"
    row = await audit_row(call)
    assert (row["context"], row["approved"]) == ('{"readonly":true}', "said")
    early = await audit_row(a_call(caller=Caller("acme", "a", groups=frozenset({"g"}), scopes=frozenset({"s"}))))
    assert json.loads(early["context"]) == {"groups": ["g"], "scopes": ["s"]}


async def test_strict_log_is_committed_before_the_response() -> None:
    log = FakeAuditLog()
    await Audit(log)(a_call(), end)
    assert log.flushed == 0
    await Audit(log, strict=True)(a_call(), end)
    assert (log.flushed, len(log.rows)) == (1, 2)
