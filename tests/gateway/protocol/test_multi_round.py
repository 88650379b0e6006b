"""Multi-round requests: sealing and opening of the request state."""

from typing import Any

import pytest

from gateway.catalogue.catalogue import McpEndpointConfig
from gateway.contract import MODERN, ClientProfile, Json
from gateway.errors import ForeignError
from gateway.protocol.multi_round import MultiRound, missing_capabilities
from gateway.protocol.sealed_tokens import TokenSeal
from tests.gateway.fakes import ALICE, BOB, FakeBackend, Rig, a_call, a_route

ROUNDS = MultiRound(TokenSeal([b"k" * 32]))
FORM: Json = {"method": "elicitation/create", "params": {"mode": "form", "message": "?"}}
URL: Json = {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x.test"}}


def input_required(*requests: Json, **more: Any) -> Json:
    return {"resultType": "input_required", "inputRequests": {str(i): each for i, each in enumerate(requests)}, **more}


def seal(result: Json, capabilities: Json, params: Json | None = None) -> Json:
    call = a_call(params=params or {"name": "lab_echo"}, client=ClientProfile(MODERN, capabilities))
    return ROUNDS.seal_result(call, result)


@pytest.mark.parametrize("declared", [1, True, "form", ["form"]])
def test_capability_that_is_not_an_object_is_not_declared(declared: object) -> None:
    assert missing_capabilities({"elicitation": declared}, {"a": FORM}) == {"elicitation": {}}


def test_state_is_sealed_and_opens_to_the_original() -> None:
    params = {"name": "lab_echo", "arguments": {"b": 1, "a": 2}}
    sealed = seal(input_required(requestState="mine"), {}, params)["requestState"]
    assert "mine" not in sealed
    reordered = {"name": "lab_echo", "arguments": {"a": 2, "b": 1}, "requestState": sealed, "inputResponses": {}}
    assert ROUNDS.open_params(ALICE, "tools/call", reordered) == {**reordered, "requestState": "mine"}


@pytest.mark.parametrize(
    ("caller", "method", "change"),
    [
        (BOB, "tools/call", {}),
        (ALICE, "prompts/get", {}),
        (ALICE, "tools/call", {"name": "lab_other"}),
        (ALICE, "tools/call", {"arguments": {"a": 1}}),
        (ALICE, "tools/call", {"requestState": "v1.AAAA"}),
        (ALICE, "tools/call", {"requestState": "mine"}),
    ],
)
def test_state_of_another_request_is_rejected(caller: Any, method: str, change: Json) -> None:
    params = {"name": "lab_echo", "arguments": {}}
    sealed = seal(input_required(requestState="mine"), {}, params)["requestState"]
    with pytest.raises(ForeignError) as refused:
        ROUNDS.open_params(caller, method, {**params, "requestState": sealed, **change})
    assert (refused.value.code, refused.value.data) == (-32602, {"reason": "invalid_request_state"})


def test_result_without_state_gets_no_state() -> None:
    result = input_required(FORM)
    assert seal(result, {"elicitation": {}}) == result


@pytest.mark.parametrize(
    ("capabilities", "requests", "missing"),
    [
        ({}, [FORM], {"elicitation": {}}),
        ({"elicitation": {}}, [FORM], {}),
        ({"elicitation": {"form": {}}}, [FORM], {}),
        ({"elicitation": {"url": {}}}, [URL], {}),
        ({}, [{"method": "roots/list"}, {"method": "sampling/createMessage"}], {"roots": {}, "sampling": {}}),
        ({}, [{"method": "custom/ask"}], {}),
        ({}, [], {}),
    ],
)
def test_undeclared_capabilities_are_missing(capabilities: Json, requests: list[Json], missing: Json) -> None:
    assert missing_capabilities(capabilities, {str(i): each for i, each in enumerate(requests)}) == missing


@pytest.mark.parametrize("declared", [{}, {"form": {}}])
def test_url_mode_is_missing_for_a_client_that_supports_only_forms(declared: Json) -> None:
    assert missing_capabilities({"elicitation": declared}, {"a": URL})


def test_form_mode_is_missing_for_a_client_that_supports_only_urls() -> None:
    assert missing_capabilities({"elicitation": {"url": {}}}, {"a": FORM})


def test_missing_capability_is_named_in_the_error() -> None:
    with pytest.raises(ForeignError) as refused:
        seal(input_required({"method": "sampling/createMessage"}, requestState="x"), {"elicitation": {}})
    assert (refused.value.code, refused.value.data) == (-32021, {"requiredCapabilities": {"sampling": {}}})


async def test_state_of_one_backend_is_never_sent_to_another() -> None:
    async def answer(call: Any) -> Json:
        return input_required(FORM, requestState=f"of {call.route.namespace}")

    one, two = FakeBackend("one", answer), FakeBackend("two", answer)
    endpoints = [McpEndpointConfig(f"/mcp/{name}", "bare", (name,)) for name in ("one", "two")]
    async with Rig(one, two, endpoints=endpoints) as rig:
        more: Json = {"capabilities": {"elicitation": {}}}
        state = (await rig.modern("tools/call", {"name": "echo"}, path="/mcp/one", **more)).json["result"][
            "requestState"
        ]
        await rig.modern("tools/call", {"name": "echo", "requestState": state}, path="/mcp/two", **more)
    assert [each.params.get("requestState") for each in two.calls] != ["of one"]


def test_state_of_a_routed_call_is_sealed() -> None:
    call = a_call(route=a_route(), client=ClientProfile(MODERN, {}))
    assert ROUNDS.seal_result(call, input_required(requestState="x"))["requestState"] != "x"
