"""The smaller stages: trace, resolve, validate, authorize, approve, guard, dispatch."""

import logging
from typing import Any

import pytest

from gateway.contract import MODERN, Call, ClientProfile, Json, Manifest, Result, Route
from gateway.contract.trace_position import Sampler
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
from tests.gateway.fakes import ALICE, FakeApprovals, FakeBackend, FakeWire, Rig, a_call, a_route

APPROVE = Approve(FakeApprovals(), lambda call: None)
HANDSHAKE_CLIENT = ClientProfile("2025-11-25", {"elicitation": {}}, session="s")


async def end(call: Call) -> Result:
    return {"route": call.route.canonical if call.route else None}


def returning(result: Any) -> Any:
    async def handler(call: Call) -> Result:
        return result

    return handler


# ---- trace


@pytest.mark.parametrize("fails", [False, True])
async def test_every_finished_call_is_reported_once(fails: bool) -> None:
    reports: list[Any] = []

    async def last(call: Call) -> Result:
        assert reports == []
        if fails:
            raise Fault(Kind.DENIED, "x")
        return {}

    call = a_call()
    try:
        await Trace(Sampler(0.0), (lambda *report: reports.append(report),))(call, last)
    except Fault:
        assert fails
    ((report, result, exc),) = reports
    assert report is call
    assert (result is None, exc is not None) == (fails, fails)
    assert call.record.position is not None


# ---- resolve


async def test_existing_route_is_not_resolved_again() -> None:
    async def resolve_again(call: Call) -> Route | None:
        raise AssertionError

    assert await Resolve(resolve_again)(a_call(), end) == {"route": "lab.echo"}


async def test_route_found_by_the_second_lookup_is_used() -> None:
    async def resolve_again(call: Call) -> Route | None:
        return a_route(canonical="lab.late")

    assert await Resolve(resolve_again)(a_call(route=None), end) == {"route": "lab.late"}


@pytest.mark.parametrize(
    ("method", "params", "message", "uri"),
    [
        ("tools/call", {"name": "x"}, "Unknown tool: x", None),
        ("prompts/get", {"name": "x"}, "Unknown prompt: x", None),
        ("resources/read", {"uri": "a:b"}, "Unknown resource: a:b", "a:b"),
        ("tools/call", {"name": "x" * 999}, f"Unknown tool: {'x' * 128}", None),
    ],
)
async def test_unknown_name_raises_unknown_name(method: str, params: Json, message: str, uri: str | None) -> None:
    async def resolve_again(call: Call) -> Route | None:
        return None

    with pytest.raises(UnknownName) as caught:
        await Resolve(resolve_again)(a_call(method, params, route=None), end)
    assert (caught.value.message, caught.value.uri) == (message, uri)


# ---- validate


async def test_arguments_above_the_limit_are_rejected_with_their_size() -> None:
    checked: list[Json] = []
    arguments = {"a": "x" * 100}
    call = a_call(params={"arguments": arguments}, route=a_route(check=checked.append), body_bytes=500)
    with pytest.raises(Fault) as caught:
        await Validate(50)(call, end)
    assert (caught.value.kind, caught.value.details) == (Kind.TOO_LARGE, {"payload_bytes": 108, "max_bytes": 50})
    assert checked == []
    await Validate(108)(call, end)
    assert checked == [arguments]


async def test_large_message_with_small_arguments_passes() -> None:
    call = a_call(params={"arguments": {}}, route=a_route(check=lambda arguments: None), body_bytes=5000)
    assert await Validate(50)(call, end)


async def test_too_large_error_contains_size_and_limit() -> None:
    async with Rig(FakeBackend(manifest=Manifest(error_style="protocol", effects={"echo": 0}))) as rig:
        response = await rig.modern("tools/call", {"name": "lab_echo", "arguments": {"a": "x" * (1 << 20)}})
    data = response.json["error"]["data"]
    assert (data["kind"], data["stage"], data["max_bytes"]) == ("too_large", "validate", 1 << 20)
    assert data["payload_bytes"] == (1 << 20) + 8


async def test_arguments_of_a_prompt_are_limited() -> None:
    backend = FakeBackend(prompts=({"name": "ask"},))
    async with Rig(backend) as rig:
        response = await rig.modern("prompts/get", {"name": "lab_ask", "arguments": {"a": "x" * (1 << 20)}})
    assert response.json["error"]["data"]["kind"] == "too_large"
    assert backend.calls == []


async def test_arguments_rejected_by_the_schema_reach_neither_policy_nor_backend() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    backend = FakeBackend(tools=({"name": "echo", "inputSchema": schema},))
    async with Rig(backend) as rig:
        response = await rig.modern("tools/call", {"name": "lab_echo", "arguments": {"n": "1"}})
    error = response.json["result"]["structuredContent"]["error"]
    assert (error["kind"], error["stage"], error["validation_rule"]) == ("invalid_input", "validate", "type")
    assert error["validation_path"].endswith("n")
    assert backend.calls == []
    assert rig.audit_log.rows[0][8] == "none"


# ---- authorize and approve


async def test_record_contains_the_decision_and_its_policies() -> None:
    call = a_call()
    assert await Authorize(lambda call: Decision(("a", "b"), "{}"))(call, end)
    assert (call.record.decision, call.record.policies, call.record.context) == ("allow", ("a", "b"), "{}")
    call = a_call()
    with pytest.raises(Fault, match="No"):
        await Authorize(lambda call: Decision(("c",), "{}", message="No.", denied="denied"))(call, end)
    assert (call.record.decision, call.record.policies) == ("deny", ("c",))


@pytest.mark.parametrize(
    ("approved", "is_enough"),
    [(True, True), ("true", True), ("1", True), (False, False), ("false", False), ("0", False)],
)
async def test_call_that_needs_approval_requires_the_approved_flag(approved: Any, is_enough: bool) -> None:
    call = a_call(params={"_meta": {"approved": approved}})
    call.record.notes["approval"] = "self"
    if is_enough:
        assert await APPROVE(call, end)
        return
    with pytest.raises(Fault) as caught:
        await APPROVE(call, end)
    assert caught.value.kind is Kind.APPROVAL_REQUIRED
    assert call.record.decision == "deny"


async def test_call_without_required_approval_passes() -> None:
    assert await APPROVE(a_call(params={}), end)


async def test_destructive_tool_requires_approval() -> None:
    backend = FakeBackend(manifest=Manifest(effects={"echo": 3}))
    async with Rig(backend) as rig:
        caught = (await rig.modern("tools/call", {"name": "lab_echo"})).json["result"]
        assert caught["structuredContent"]["error"]["kind"] == "approval_required"
        assert backend.calls == []
        await rig.modern("tools/call", {"name": "lab_echo"}, meta={"approved": True})
    assert len(backend.calls) == 1


# ---- guard


async def test_result_above_the_limit_is_rejected_not_truncated() -> None:
    with pytest.raises(Fault) as caught:
        await Guard(50)(a_call(), returning({"a": "x" * 100}))
    assert (caught.value.kind, caught.value.stage) == (Kind.TOO_LARGE, "guard")
    assert caught.value.details == {"payload_bytes": 108, "max_bytes": 50}
    assert await Guard(108)(a_call(), returning({"a": "x" * 100}))


async def test_result_that_is_not_json_raises_internal() -> None:
    with pytest.raises(Fault) as caught:
        await Guard(50)(a_call(), returning({"a": object()}))
    assert caught.value.kind is Kind.INTERNAL


async def test_result_with_a_lone_surrogate_is_limited_as_well() -> None:
    with pytest.raises(Fault):
        await Guard(50)(a_call(), returning({"a": "\ud800" + "x" * 100}))


# ---- dispatch


async def test_exception_of_a_backend_is_logged_and_its_text_is_hidden_from_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(call: Call) -> Json:
        raise ValueError("/srv/secret")

    with pytest.raises(Fault) as caught, caplog.at_level(logging.ERROR):
        await Dispatch()(a_call(route=a_route(FakeBackend(answer=answer))))
    assert caught.value.kind is Kind.INTERNAL
    assert "secret" not in caught.value.message
    assert "/srv/secret" in caplog.text
    assert caplog.records[0].correlation_id == "cid"  # type: ignore[attr-defined]


@pytest.mark.parametrize("exc", [Fault(Kind.ILLEGAL_STATE, "x"), ForeignError(7, "x")])
async def test_fault_and_foreign_error_of_a_backend_are_passed_on(exc: Exception) -> None:
    async def answer(call: Call) -> Json:
        raise exc

    with pytest.raises(type(exc)) as caught:
        await Dispatch()(a_call(route=a_route(FakeBackend(answer=answer))))
    assert caught.value is exc


async def test_links_in_results_are_rewritten() -> None:
    route = a_route(rewrite=lambda result: {**result, "renamed": True})
    assert (await Dispatch()(a_call(route=route)))["renamed"] is True  # type: ignore[index]


async def always_input_required(call: Call) -> Json:
    return {
        "resultType": "input_required",
        "inputRequests": {"a": {"method": "elicitation/create"}},
        "requestState": "s",
    }


async def test_input_required_becomes_a_client_request_for_handshake_clients() -> None:
    async def answer(call: Call) -> Json:
        if "inputResponses" in call.params:
            return {"content": [], "got": call.params["inputResponses"], "state": call.params["requestState"]}
        return await always_input_required(call)

    wire = FakeWire({"elicitation/create": {"action": "accept"}})
    route = a_route(FakeBackend(answer=answer))
    result = await Dispatch()(
        a_call(params={"name": "x", "arguments": {}}, route=route, client=HANDSHAKE_CLIENT, wire=wire)
    )
    assert (result["got"], result["state"]) == ({"a": {"action": "accept"}}, "s")  # type: ignore[index]


async def test_modern_client_gets_the_input_required_result() -> None:
    wire = FakeWire()
    call = a_call(route=a_route(FakeBackend(answer=always_input_required)), client=ClientProfile(MODERN, {}), wire=wire)
    assert (await Dispatch()(call))["resultType"] == "input_required"  # type: ignore[index]
    assert wire.requests == []


async def test_number_of_input_rounds_is_limited() -> None:
    wire = FakeWire({"elicitation/create": {}})
    with pytest.raises(Fault) as caught:
        await Dispatch()(
            a_call(
                route=a_route(FakeBackend(answer=always_input_required)),
                client=HANDSHAKE_CLIENT,
                wire=wire,
                caller=ALICE,
            )
        )
    assert caught.value.kind is Kind.ILLEGAL_STATE
    assert len(wire.requests) == MAX_ROUNDS


# ---- rejections before the stages


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_request_with_invalid_params_is_charged_audited_and_traced(era: str) -> None:
    async with Rig(FakeBackend(), rate="3/minute") as rig:
        session = await rig.session() if era == "legacy" else None

        async def ask() -> Json:
            params = {"name": "lab_echo", "arguments": "none"}
            response = await (
                rig.modern("tools/call", params) if session is None else rig.legacy(session, "tools/call", params)
            )
            return response.json["error"]

        first = await ask()
        assert (first["code"], first["data"]["kind"]) == (-32602, "invalid_input")
        assert rig.audit_log.rows[-1][11] == "invalid_input"
        assert rig.traced_calls[-1].record.outcome == "invalid_input"
        while first["data"]["kind"] == "invalid_input":
            first = await ask()
    assert first["data"]["kind"] == "rate_limited"


@pytest.mark.parametrize("name", ["lab_echo", "no_such_tool"])
async def test_calls_of_a_suspended_tenant_are_denied_with_the_reason(name: str) -> None:
    backend = FakeBackend()
    async with Rig(backend, tenant=Tenant("acme", suspended=True)) as rig:
        called = await rig.modern("tools/call", {"name": name})
        listed = await rig.modern("tools/list")
    for response in (called, listed):
        error = response.json["error"]
        assert (error["data"]["kind"], error["message"]) == (
            "denied",
            "This tenant is suspended.",
        )
    assert backend.calls == []
