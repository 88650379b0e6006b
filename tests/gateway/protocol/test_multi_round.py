"""Requests of several rounds: state sealed on the way out, opened on the way back."""

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


def asking(*requests: Json, **more: Any) -> Json:
    return {"resultType": "input_required", "inputRequests": {str(i): each for i, each in enumerate(requests)}, **more}


def out(result: Json, capabilities: Json, params: Json | None = None) -> Json:
    call = a_call(params=params or {"name": "lab_echo"}, client=ClientProfile(MODERN, capabilities))
    return ROUNDS.out(call, result)


@pytest.mark.parametrize("declared", [1, True, "form", ["form"]])
def test_what_is_no_object_declares_nothing(declared: object) -> None:
    assert missing_capabilities({"elicitation": declared}, {"a": FORM}) == {"elicitation": {}}


def test_state_goes_out_sealed_and_comes_back_as_it_was() -> None:
    params = {"name": "lab_echo", "arguments": {"b": 1, "a": 2}}
    sealed = out(asking(requestState="mine"), {}, params)["requestState"]
    assert "mine" not in sealed
    reordered = {"name": "lab_echo", "arguments": {"a": 2, "b": 1}, "requestState": sealed, "inputResponses": {}}
    assert ROUNDS.back(ALICE, "tools/call", reordered) == {**reordered, "requestState": "mine"}


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
def test_state_of_another_request_is_refused(caller: Any, method: str, change: Json) -> None:
    params = {"name": "lab_echo", "arguments": {}}
    sealed = out(asking(requestState="mine"), {}, params)["requestState"]
    with pytest.raises(ForeignError) as refused:
        ROUNDS.back(caller, method, {**params, "requestState": sealed, **change})
    assert (refused.value.code, refused.value.data) == (-32602, {"reason": "invalid_request_state"})


def test_a_result_without_state_gets_none() -> None:
    result = asking(FORM)
    assert out(result, {"elicitation": {}}) == result


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
def test_what_a_client_did_not_declare_is_missing(capabilities: Json, requests: list[Json], missing: Json) -> None:
    assert missing_capabilities(capabilities, {str(i): each for i, each in enumerate(requests)}) == missing


@pytest.mark.parametrize("declared", [{}, {"form": {}}])
def test_a_client_that_can_only_fill_forms_is_not_sent_a_link(declared: Json) -> None:
    assert missing_capabilities({"elicitation": declared}, {"a": URL})


def test_a_client_that_can_only_open_links_is_not_sent_a_form() -> None:
    assert missing_capabilities({"elicitation": {"url": {}}}, {"a": FORM})


def test_asking_for_what_is_missing_names_it() -> None:
    with pytest.raises(ForeignError) as refused:
        out(asking({"method": "sampling/createMessage"}, requestState="x"), {"elicitation": {}})
    assert (refused.value.code, refused.value.data) == (-32021, {"requiredCapabilities": {"sampling": {}}})


async def test_the_state_of_one_backend_never_reaches_another() -> None:
    async def answer(call: Any) -> Json:
        return asking(FORM, requestState=f"of {call.route.namespace}")

    one, two = FakeBackend("one", answer), FakeBackend("two", answer)
    endpoints = [McpEndpointConfig(f"/mcp/{name}", "bare", (name,)) for name in ("one", "two")]
    async with Rig(one, two, endpoints=endpoints) as rig:
        more: Json = {"capabilities": {"elicitation": {}}}
        state = (await rig.modern("tools/call", {"name": "echo"}, path="/mcp/one", **more)).json["result"][
            "requestState"
        ]
        await rig.modern("tools/call", {"name": "echo", "requestState": state}, path="/mcp/two", **more)
    assert [each.params.get("requestState") for each in two.calls] != ["of one"]


def test_a_route_is_needed_to_seal_state() -> None:
    call = a_call(route=a_route(), client=ClientProfile(MODERN, {}))
    assert ROUNDS.out(call, asking(requestState="x"))["requestState"] != "x"
