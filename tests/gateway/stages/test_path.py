"""The smaller stages: trace, resolve, validate, authorize, approve, guard, dispatch."""

import logging
from typing import Any

import pytest

from gateway.contract import MODERN, Call, ClientProfile, Json, Manifest, Result, Route
from gateway.errors import Fault, ForeignError, Kind, UnknownName
from gateway.policy.decisions import Decision
from gateway.stages.approve import Approve
from gateway.stages.authorize import Authorize
from gateway.stages.dispatch import MAX_ROUNDS, Dispatch
from gateway.stages.guard import Guard
from gateway.stages.resolve import Resolve
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.tenants import Tenant
from gateway.telemetry.sampling import Sampler
from tests.gateway.fakes import ALICE, FakeApprovals, FakeBackend, FakeWire, Rig, a_call, a_route

APPROVE = Approve(FakeApprovals(), lambda call: None)
OLD = ClientProfile("2025-11-25", {"elicitation": {}}, session="s")


async def end(call: Call) -> Result:
    return {"route": call.route.canonical if call.route else None}


def giving(result: Any) -> Any:
    async def given(call: Call) -> Result:
        return result

    return given


# ---- trace


@pytest.mark.parametrize("fails", [False, True])
async def test_every_call_is_told_of_once_when_it_ends(fails: bool) -> None:
    told: list[Call] = []

    async def last(call: Call) -> Result:
        assert told == []
        if fails:
            raise Fault(Kind.DENIED, "x")
        return {}

    call = a_call()
    try:
        await Trace(Sampler(0.0), lambda *ended: told.append(ended))(call, last)
    except Fault:
        assert fails
    ((ended, result, exc),) = told
    assert ended is call
    assert (result is None, exc is not None) == (fails, fails)
    assert call.record.position is not None


# ---- resolve


async def test_a_route_that_is_there_is_not_looked_for() -> None:
    async def again(call: Call) -> Route | None:
        raise AssertionError

    assert await Resolve(again)(a_call(), end) == {"route": "lab.echo"}


async def test_a_route_found_at_the_second_look_is_taken() -> None:
    async def again(call: Call) -> Route | None:
        return a_route(canonical="lab.late")

    assert await Resolve(again)(a_call(route=None), end) == {"route": "lab.late"}


@pytest.mark.parametrize(
    ("method", "params", "message", "uri"),
    [
        ("tools/call", {"name": "x"}, "Unknown tool: x", None),
        ("prompts/get", {"name": "x"}, "Unknown prompt: x", None),
        ("resources/read", {"uri": "a:b"}, "Unknown resource: a:b", "a:b"),
        ("tools/call", {"name": "x" * 999}, f"Unknown tool: {'x' * 128}", None),
    ],
)
async def test_a_name_that_leads_nowhere_is_unknown(method: str, params: Json, message: str, uri: str | None) -> None:
    async def again(call: Call) -> Route | None:
        return None

    with pytest.raises(UnknownName) as unknown:
        await Resolve(again)(a_call(method, params, route=None), end)
    assert (unknown.value.message, unknown.value.uri) == (message, uri)


# ---- validate


async def test_arguments_over_the_bound_are_too_large_and_say_by_how_much() -> None:
    checked: list[Json] = []
    arguments = {"a": "x" * 100}
    call = a_call(params={"arguments": arguments}, route=a_route(check=checked.append), body_bytes=500)
    with pytest.raises(Fault) as refused:
        await Validate(50)(call, end)
    assert (refused.value.kind, refused.value.details) == (Kind.TOO_LARGE, {"payload_bytes": 108, "max_bytes": 50})
    assert checked == []
    await Validate(108)(call, end)
    assert checked == [arguments]


async def test_a_large_message_with_small_arguments_passes() -> None:
    call = a_call(params={"arguments": {}}, route=a_route(check=lambda arguments: None), body_bytes=5000)
    assert await Validate(50)(call, end)


async def test_too_large_is_said_with_its_facts_on_the_wire() -> None:
    async with Rig(FakeBackend(manifest=Manifest(error_style="protocol", effects={"echo": 0}))) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo", "arguments": {"a": "x" * (1 << 20)}})
    data = paper.json["error"]["data"]
    assert (data["kind"], data["stage"], data["max_bytes"]) == ("too_large", "validate", 1 << 20)
    assert data["payload_bytes"] == (1 << 20) + 8


async def test_the_arguments_of_a_prompt_are_bounded_too() -> None:
    backend = FakeBackend(prompts=({"name": "ask"},))
    async with Rig(backend) as rig:
        paper = await rig.modern("prompts/get", {"name": "lab_ask", "arguments": {"a": "x" * (1 << 20)}})
    assert paper.json["error"]["data"]["kind"] == "too_large"
    assert backend.calls == []


async def test_what_the_schema_refuses_never_reaches_policy_or_backend() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    backend = FakeBackend(tools=({"name": "echo", "inputSchema": schema},))
    async with Rig(backend) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo", "arguments": {"n": "1"}})
    error = paper.json["result"]["structuredContent"]["error"]
    assert (error["kind"], error["stage"], error["validation_rule"]) == ("invalid_input", "validate", "type")
    assert error["validation_path"].endswith("n")
    assert backend.calls == []
    assert rig.log.rows[0][8] == "none"


# ---- authorize and approve


async def test_the_record_keeps_what_was_decided_and_by_what() -> None:
    call = a_call()
    assert await Authorize(lambda call: Decision(("a", "b"), "{}"))(call, end)
    assert (call.record.decision, call.record.policies, call.record.context) == ("allow", ("a", "b"), "{}")
    call = a_call()
    with pytest.raises(Fault, match="No"):
        await Authorize(lambda call: Decision(("c",), "{}", message="No.", refused="denied"))(call, end)
    assert (call.record.decision, call.record.policies) == ("deny", ("c",))


@pytest.mark.parametrize(
    ("word", "enough"),
    [(True, True), ("true", True), ("1", True), (1, False), ("yes", False), (None, False), ([], False), (False, False)],
)
async def test_what_needs_approval_waits_for_the_word(word: Any, enough: bool) -> None:
    call = a_call(params={"_meta": {"approved": word}})
    call.record.notes["approval"] = "self"
    if enough:
        assert await APPROVE(call, end)
        return
    with pytest.raises(Fault) as refused:
        await APPROVE(call, end)
    assert refused.value.kind is Kind.APPROVAL_REQUIRED
    assert call.record.decision == "deny"


async def test_what_needs_no_approval_does_not_wait() -> None:
    assert await APPROVE(a_call(params={}), end)


async def test_a_destructive_tool_is_called_only_with_approval() -> None:
    backend = FakeBackend(manifest=Manifest(effects={"echo": 3}))
    async with Rig(backend) as rig:
        refused = (await rig.modern("tools/call", {"name": "lab_echo"})).json["result"]
        assert refused["structuredContent"]["error"]["kind"] == "approval_required"
        assert backend.calls == []
        await rig.modern("tools/call", {"name": "lab_echo"}, meta={"approved": True})
    assert len(backend.calls) == 1


# ---- guard


async def test_a_result_over_the_bound_is_refused_not_cut() -> None:
    with pytest.raises(Fault) as refused:
        await Guard(50)(a_call(), giving({"a": "x" * 100}))
    assert (refused.value.kind, refused.value.stage) == (Kind.TOO_LARGE, "guard")
    assert refused.value.details == {"payload_bytes": 108, "max_bytes": 50}
    assert await Guard(108)(a_call(), giving({"a": "x" * 100}))


async def test_a_result_that_is_not_json_is_the_backends_defect() -> None:
    with pytest.raises(Fault) as refused:
        await Guard(50)(a_call(), giving({"a": object()}))
    assert refused.value.kind is Kind.INTERNAL


async def test_a_result_with_half_a_surrogate_pair_is_bounded_as_well() -> None:
    with pytest.raises(Fault):
        await Guard(50)(a_call(), giving({"a": "\ud800" + "x" * 100}))


# ---- dispatch


async def test_an_exception_of_a_backend_is_logged_and_its_text_kept_from_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(call: Call) -> Json:
        raise ValueError("/srv/secret")

    with pytest.raises(Fault) as failed, caplog.at_level(logging.ERROR):
        await Dispatch()(a_call(route=a_route(FakeBackend(answer=answer))))
    assert failed.value.kind is Kind.INTERNAL
    assert "secret" not in failed.value.message
    assert "/srv/secret" in caplog.text
    assert caplog.records[0].correlation_id == "cid"  # type: ignore[attr-defined]


@pytest.mark.parametrize("exc", [Fault(Kind.ILLEGAL_STATE, "x"), ForeignError(7, "x")])
async def test_what_a_backend_says_itself_goes_on_as_it_is(exc: Exception) -> None:
    async def answer(call: Call) -> Json:
        raise exc

    with pytest.raises(type(exc)) as said:
        await Dispatch()(a_call(route=a_route(FakeBackend(answer=answer))))
    assert said.value is exc


async def test_links_are_renamed_on_the_way_out() -> None:
    route = a_route(rewrite=lambda result: {**result, "renamed": True})
    assert (await Dispatch()(a_call(route=route)))["renamed"] is True  # type: ignore[index]


async def asks_for_ever(call: Call) -> Json:
    return {
        "resultType": "input_required",
        "inputRequests": {"a": {"method": "elicitation/create"}},
        "requestState": "s",
    }


async def test_an_old_client_is_asked_in_place_of_an_input_required_result() -> None:
    async def answer(call: Call) -> Json:
        if "inputResponses" in call.params:
            return {"content": [], "got": call.params["inputResponses"], "state": call.params["requestState"]}
        return await asks_for_ever(call)

    wire = FakeWire({"elicitation/create": {"action": "accept"}})
    route = a_route(FakeBackend(answer=answer))
    result = await Dispatch()(a_call(params={"name": "x", "arguments": {}}, route=route, client=OLD, wire=wire))
    assert (result["got"], result["state"]) == ({"a": {"action": "accept"}}, "s")  # type: ignore[index]


async def test_a_new_client_gets_the_result_as_it_is() -> None:
    wire = FakeWire()
    call = a_call(route=a_route(FakeBackend(answer=asks_for_ever)), client=ClientProfile(MODERN, {}), wire=wire)
    assert (await Dispatch()(call))["resultType"] == "input_required"  # type: ignore[index]
    assert wire.asked == []


async def test_a_backend_that_asks_for_ever_is_stopped() -> None:
    wire = FakeWire({"elicitation/create": {}})
    with pytest.raises(Fault) as stopped:
        await Dispatch()(a_call(route=a_route(FakeBackend(answer=asks_for_ever)), client=OLD, wire=wire, caller=ALICE))
    assert stopped.value.kind is Kind.ILLEGAL_STATE
    assert len(wire.asked) == MAX_ROUNDS


# ---- what the door itself refuses


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_request_with_wrong_params_is_charged_audited_and_told_like_any_other(era: str) -> None:
    async with Rig(FakeBackend(), calls="3/minute") as rig:
        session = await rig.session() if era == "legacy" else None

        async def ask() -> Json:
            wrong = {"name": "lab_echo", "arguments": "none"}
            paper = await (
                rig.modern("tools/call", wrong) if session is None else rig.legacy(session, "tools/call", wrong)
            )
            return paper.json["error"]

        first = await ask()
        assert (first["code"], first["data"]["kind"]) == (-32602, "invalid_input")
        assert rig.log.rows[-1][11] == "invalid_input"
        assert rig.told[-1].record.outcome == "invalid_input"
        while first["data"]["kind"] == "invalid_input":
            first = await ask()
    assert first["data"]["kind"] == "rate_limited"


@pytest.mark.parametrize("name", ["lab_echo", "no_such_tool"])
async def test_a_suspended_tenant_is_told_so_whatever_it_calls(name: str) -> None:
    backend = FakeBackend()
    async with Rig(backend, tenant=Tenant("acme", suspended=True)) as rig:
        called = await rig.modern("tools/call", {"name": name})
        listed = await rig.modern("tools/list")
    for paper in (called, listed):
        error = paper.json["error"]
        assert (error["data"]["kind"], error["message"]) == ("denied", "This tenant is suspended.")
    assert backend.calls == []
