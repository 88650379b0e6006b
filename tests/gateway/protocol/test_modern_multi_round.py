"""The modern era: multi-round calls, and tools that appear late."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Call, Json
from tests.gateway.fakes import BOB, FakeBackend, Rig, until

INPUT_REQUIRED: Json = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}},
    "requestState": "step1",
}


# ---- multi-round calls ------------------------------------------------------------------------------------------


async def two_rounds(call: Call) -> Json:
    if "inputResponses" not in call.params:
        return dict(INPUT_REQUIRED)
    return {"content": [], "structuredContent": {k: call.params[k] for k in ("inputResponses", "requestState")}}


async def test_call_that_requires_input_completes_with_its_retry() -> None:
    capabilities = {"elicitation": {}}
    async with Rig(FakeBackend(answer=two_rounds)) as rig:
        call = {"name": "lab_echo", "arguments": {"a": 1}}
        input_required = (await rig.modern("tools/call", call, capabilities=capabilities)).json["result"]
        assert (input_required["resultType"], input_required["inputRequests"]) == (
            "input_required",
            INPUT_REQUIRED["inputRequests"],
        )
        assert "step1" not in input_required["requestState"]
        retry = {
            **call,
            "inputResponses": {"who": {"action": "accept"}},
            "requestState": input_required["requestState"],
        }
        done = (await rig.modern("tools/call", retry, id=2, capabilities=capabilities)).json["result"]
    assert done["structuredContent"] == {"inputResponses": {"who": {"action": "accept"}}, "requestState": "step1"}


@pytest.mark.parametrize("change", ["caller", "arguments", "state", "method"])
async def test_request_state_is_valid_only_for_the_same_caller_and_request(change: str) -> None:
    capabilities = {"elicitation": {}}
    backend = FakeBackend(answer=two_rounds, prompts=({"name": "echo"},))
    async with Rig(backend) as rig:
        call: Json = {"name": "lab_echo", "arguments": {"a": "1"}}
        state = (await rig.modern("tools/call", call, capabilities=capabilities)).json["result"]["requestState"]
        retry: Json = {**call, "inputResponses": {}, "requestState": state}
        more: Json = {"caller": BOB} if change == "caller" else {}
        if change == "arguments":
            retry["arguments"] = {"a": "2"}
        if change == "state":
            retry["requestState"] = state[:-1] + ("A" if state[-1] != "A" else "B")
        method = "prompts/get" if change == "method" else "tools/call"
        call_count = len(backend.calls)
        response = await rig.modern(method, retry, capabilities=capabilities, **more)
    assert (response.status, response.json["error"]["code"]) == (400, -32602)
    assert response.json["error"]["data"] == {"reason": "invalid_request_state"}
    assert len(backend.calls) == call_count


async def test_client_without_the_capability_is_never_asked() -> None:
    async with Rig(FakeBackend(answer=two_rounds)) as rig:
        response = await rig.modern("tools/call", {"name": "lab_echo"}, capabilities={"sampling": {}})
    assert (response.status, response.json["error"]["code"]) == (400, -32021)
    assert response.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize("state", [7, ["v1.A"], {}])
async def test_request_state_that_is_not_a_string_is_rejected(method: str, state: Any) -> None:
    async with Rig(FakeBackend(prompts=({"name": "echo"},))) as rig:
        response = await rig.modern(method, {"name": "lab_echo", "requestState": state})
    assert (response.status, response.json["error"]["code"]) == (400, -32602)
    assert response.json["error"]["message"] == "params.requestState must be a string."


@pytest.mark.parametrize("state", [7, ["v1.A"], {}, "v1.A"])
async def test_request_state_of_a_list_request_is_ignored(state: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.modern("tools/list", {"requestState": state})
    assert (response.status, [tool["name"] for tool in response.json["result"]["tools"]]) == (200, ["lab_echo"])


async def asks_client(call: Call) -> Json:
    answers = await call.wire.ask({"who": INPUT_REQUIRED["inputRequests"]["who"]})
    return {"content": [], "structuredContent": answers}


SUPPORTS_ELICITATION: Json = {"capabilities": {"elicitation": {}}}


async def get_answer(rig: Rig, params: Json, id: Any = 1) -> Json:
    """Return the response, even if the call is still running."""
    response, task = rig.begin_modern("tools/call", params, id=id, **SUPPORTS_ELICITATION)
    await until(lambda: response.closed or task.done())
    if not response.closed:
        await task
    return response.json


async def test_parked_call_resumes_with_the_answers_of_a_later_request() -> None:
    backend = FakeBackend(answer=asks_client)
    async with Rig(backend) as rig:
        input_required = (await get_answer(rig, {"name": "lab_echo"}))["result"]
        assert (input_required["resultType"], list(input_required["inputRequests"])) == ("input_required", ["who"])
        retry: Json = {"name": "lab_echo", "requestState": input_required["requestState"]}
        again = await get_answer(rig, {**retry, "inputResponses": {}}, 2)
        assert (again["id"], again["result"]["resultType"]) == (2, "input_required")
        retry = {"name": "lab_echo", "requestState": again["result"]["requestState"]}
        answers = {"who": {"action": "decline"}}
        done = await get_answer(rig, {**retry, "inputResponses": answers}, "three")
        assert (done["id"], done["result"]["structuredContent"]) == ("three", answers)
        late = await get_answer(rig, {**retry, "inputResponses": answers})
        assert late["error"]["code"] == 503
    assert len(backend.calls) == 1


async def test_call_that_ends_while_parked_delivers_both_its_result_and_the_answers() -> None:
    """Some servers ask for the client's roots and do not wait for the answer."""
    answers_received: list[Json] = []
    side_tasks: set[asyncio.Task[None]] = set()
    go_on = asyncio.Event()

    async def answer(call: Call) -> Json:
        async def ask() -> None:
            answers_received.append(await call.wire.ask({"who": INPUT_REQUIRED["inputRequests"]["who"]}))

        side_tasks.add(asyncio.create_task(ask()))
        await go_on.wait()
        return {"content": [], "structuredContent": {"done": True}}

    async with Rig(FakeBackend(answer=answer)) as rig:
        first, call = rig.begin_modern("tools/call", {"name": "lab_echo"}, **SUPPORTS_ELICITATION)
        await until(lambda: first.closed)
        go_on.set()
        await call
        retry: Json = {"name": "lab_echo", "requestState": first.json["result"]["requestState"]}
        answers = {"who": {"action": "decline"}}
        done = await get_answer(rig, {**retry, "inputResponses": answers}, 2)
        await asyncio.gather(*side_tasks)
    assert (done["id"], done["result"]["structuredContent"]) == (2, {"done": True})
    assert answers_received == [answers]


async def test_input_responses_that_are_not_an_object_are_rejected() -> None:
    async with Rig(FakeBackend(answer=asks_client)) as rig:
        input_required = (await get_answer(rig, {"name": "lab_echo"}))["result"]
        retry: Json = {"name": "lab_echo", "requestState": input_required["requestState"], "inputResponses": "who"}
        refused = await get_answer(rig, retry)
    assert refused["error"]["code"] == -32602


async def test_two_concurrent_retries_are_both_answered() -> None:
    async with Rig(FakeBackend(answer=asks_client)) as rig:
        input_required = (await get_answer(rig, {"name": "lab_echo"}))["result"]
        retry: Json = {
            "name": "lab_echo",
            "requestState": input_required["requestState"],
            "inputResponses": {"who": {}},
        }
        tasks = [rig.begin_modern("tools/call", retry, id=id, **SUPPORTS_ELICITATION)[1] for id in (2, 3)]
        _, waiting = await asyncio.wait(tasks, timeout=0.2)
    assert not waiting


# ---- late tools -------------------------------------------------------------------------------------------------


async def add_late_tool(rig: Rig, backend: FakeBackend) -> None:
    """Give the backend a tool without a change notification."""
    backend.lists = FakeBackend(tools=({"name": "late", "inputSchema": {"type": "object"}},)).lists
    rig.catalogue._read_at.clear()


async def test_unannounced_tool_is_found_by_reloading_the_lists() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        await add_late_tool(rig, backend)
        assert "result" in (await rig.modern("tools/call", {"name": "lab_late"})).json


async def test_failure_of_a_tool_found_late_has_the_form_of_its_backend() -> None:
    async def answer(call: Call) -> Json:
        raise ValueError

    backend = FakeBackend(answer=answer)
    async with Rig(backend) as rig:
        await add_late_tool(rig, backend)
        response = await rig.modern("tools/call", {"name": "lab_late"})
    assert response.json.get("result", {}).get("isError") is True


async def test_a_tool_found_late_may_ask_for_input() -> None:
    backend = FakeBackend(answer=two_rounds)
    async with Rig(backend) as rig:
        await add_late_tool(rig, backend)
        response = await rig.modern("tools/call", {"name": "lab_late"}, capabilities={"elicitation": {}})
    assert response.json.get("result", {}).get("resultType") == "input_required"


async def test_a_tool_found_late_is_audited_under_its_canonical_id() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        await add_late_tool(rig, backend)
        await rig.modern("tools/call", {"name": "lab_late"})
        row = rig.audit_log.rows[-1]
    assert (row[6], row[7]) == ("lab.late", 2)
