"""2026-07-28: calls of several rounds, and tools that appear late."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Call, Json
from tests.gateway.fakes import BOB, FakeBackend, Rig, until

ASKS: Json = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}},
    "requestState": "step1",
}


# ---- several rounds ---------------------------------------------------------------------------------------------


async def two_rounds(call: Call) -> Json:
    if "inputResponses" not in call.params:
        return dict(ASKS)
    return {"content": [], "structuredContent": {k: call.params[k] for k in ("inputResponses", "requestState")}}


async def test_a_call_that_needs_input_is_finished_by_its_retry() -> None:
    capabilities = {"elicitation": {}}
    async with Rig(FakeBackend(answer=two_rounds)) as rig:
        call = {"name": "lab_echo", "arguments": {"a": 1}}
        asked = (await rig.modern("tools/call", call, capabilities=capabilities)).json["result"]
        assert (asked["resultType"], asked["inputRequests"]) == ("input_required", ASKS["inputRequests"])
        assert "step1" not in asked["requestState"]
        retry = {**call, "inputResponses": {"who": {"action": "accept"}}, "requestState": asked["requestState"]}
        done = (await rig.modern("tools/call", retry, id=2, capabilities=capabilities)).json["result"]
    assert done["structuredContent"] == {"inputResponses": {"who": {"action": "accept"}}, "requestState": "step1"}


@pytest.mark.parametrize("change", ["caller", "arguments", "state", "method"])
async def test_request_state_is_good_only_for_the_same_caller_and_request(change: str) -> None:
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
        seen = len(backend.calls)
        paper = await rig.modern(method, retry, capabilities=capabilities, **more)
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602)
    assert paper.json["error"]["data"] == {"reason": "invalid_request_state"}
    assert len(backend.calls) == seen


async def test_a_client_that_did_not_say_that_it_can_is_never_asked() -> None:
    async with Rig(FakeBackend(answer=two_rounds)) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo"}, capabilities={"sampling": {}})
    assert (paper.status, paper.json["error"]["code"]) == (400, -32021)
    assert paper.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize("state", [7, ["v1.A"], {}])
async def test_a_state_that_is_no_text_is_the_clients_mistake(method: str, state: Any) -> None:
    async with Rig(FakeBackend(prompts=({"name": "echo"},))) as rig:
        paper = await rig.modern(method, {"name": "lab_echo", "requestState": state})
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602)
    assert paper.json["error"]["message"] == "params.requestState must be a string."


@pytest.mark.parametrize("state", [7, ["v1.A"], {}, "v1.A"])
async def test_a_state_means_nothing_to_a_list_which_has_one_round(state: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern("tools/list", {"requestState": state})
    assert (paper.status, [tool["name"] for tool in paper.json["result"]["tools"]]) == (200, ["lab_echo"])


async def waits(call: Call) -> Json:
    answers = await call.wire.ask({"who": ASKS["inputRequests"]["who"]})
    return {"content": [], "structuredContent": answers}


CAN: Json = {"capabilities": {"elicitation": {}}}


async def answered(rig: Rig, params: Json, id: Any = 1) -> Json:
    """The answer, though the call may go on."""
    paper, task = rig.begin_modern("tools/call", params, id=id, **CAN)
    await until(lambda: paper.closed or task.done())
    if not paper.closed:
        await task
    return paper.json


async def test_a_backend_that_asks_in_the_middle_goes_on_when_its_client_comes_back() -> None:
    backend = FakeBackend(answer=waits)
    async with Rig(backend) as rig:
        asked = (await answered(rig, {"name": "lab_echo"}))["result"]
        assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["who"])
        retry: Json = {"name": "lab_echo", "requestState": asked["requestState"]}
        again = await answered(rig, {**retry, "inputResponses": {}}, 2)
        assert (again["id"], again["result"]["resultType"]) == (2, "input_required")
        retry = {"name": "lab_echo", "requestState": again["result"]["requestState"]}
        answers = {"who": {"action": "decline"}}
        done = await answered(rig, {**retry, "inputResponses": answers}, "three")
        assert (done["id"], done["result"]["structuredContent"]) == ("three", answers)
        late = await answered(rig, {**retry, "inputResponses": answers})
        assert late["error"]["code"] == 503
    assert len(backend.calls) == 1


async def test_a_call_that_ends_before_its_question_is_answered_loses_neither_answer() -> None:
    """As a server does that asks for the client's roots beside its work, and does not wait for them."""
    heard: list[Json] = []
    beside: set[asyncio.Task[None]] = set()
    go_on = asyncio.Event()

    async def answer(call: Call) -> Json:
        async def ask() -> None:
            heard.append(await call.wire.ask({"who": ASKS["inputRequests"]["who"]}))

        beside.add(asyncio.create_task(ask()))
        await go_on.wait()
        return {"content": [], "structuredContent": {"done": True}}

    async with Rig(FakeBackend(answer=answer)) as rig:
        first, call = rig.begin_modern("tools/call", {"name": "lab_echo"}, **CAN)
        await until(lambda: first.closed)
        go_on.set()
        await call
        retry: Json = {"name": "lab_echo", "requestState": first.json["result"]["requestState"]}
        answers = {"who": {"action": "decline"}}
        done = await answered(rig, {**retry, "inputResponses": answers}, 2)
        await asyncio.gather(*beside)
    assert (done["id"], done["result"]["structuredContent"]) == (2, {"done": True})
    assert heard == [answers]


async def test_answers_that_are_no_object_are_the_clients_mistake() -> None:
    async with Rig(FakeBackend(answer=waits)) as rig:
        asked = (await answered(rig, {"name": "lab_echo"}))["result"]
        retry: Json = {"name": "lab_echo", "requestState": asked["requestState"], "inputResponses": "who"}
        refused = await answered(rig, retry)
    assert refused["error"]["code"] == -32602


async def test_two_retries_at_once_are_both_answered() -> None:
    async with Rig(FakeBackend(answer=waits)) as rig:
        asked = (await answered(rig, {"name": "lab_echo"}))["result"]
        retry: Json = {"name": "lab_echo", "requestState": asked["requestState"], "inputResponses": {"who": {}}}
        tasks = [rig.begin_modern("tools/call", retry, id=id, **CAN)[1] for id in (2, 3)]
        _, waiting = await asyncio.wait(tasks, timeout=0.2)
    assert not waiting


# ---- what appears late ------------------------------------------------------------------------------------------


async def late_tool(rig: Rig, backend: FakeBackend) -> None:
    """The backend has a tool that nobody was told of."""
    backend.offered = FakeBackend(tools=({"name": "late", "inputSchema": {"type": "object"}},)).offered
    rig.catalogue._read_at.clear()


async def test_a_tool_that_nobody_was_told_of_is_found_by_reading_once_more() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        await late_tool(rig, backend)
        assert "result" in (await rig.modern("tools/call", {"name": "lab_late"})).json


async def test_a_tool_found_late_fails_in_its_backends_own_form() -> None:
    async def answer(call: Call) -> Json:
        raise ValueError

    backend = FakeBackend(answer=answer)
    async with Rig(backend) as rig:
        await late_tool(rig, backend)
        paper = await rig.modern("tools/call", {"name": "lab_late"})
    assert paper.json.get("result", {}).get("isError") is True


async def test_a_tool_found_late_may_ask_for_input() -> None:
    backend = FakeBackend(answer=two_rounds)
    async with Rig(backend) as rig:
        await late_tool(rig, backend)
        paper = await rig.modern("tools/call", {"name": "lab_late"}, capabilities={"elicitation": {}})
    assert paper.json.get("result", {}).get("resultType") == "input_required"


async def test_a_tool_found_late_is_audited_under_its_canonical_id() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        await late_tool(rig, backend)
        await rig.modern("tools/call", {"name": "lab_late"})
        row = rig.log.rows[-1]
    assert (row[6], row[7]) == ("lab.late", 2)
