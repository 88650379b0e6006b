"""What destroys waits for a person: asked in either era, bound to the very request, used once."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Call, Json, Manifest
from gateway.errors import Kind
from gateway.protocol.client_requests import ANSWER_SECONDS
from gateway.protocol.sealed_tokens import STATE_SECONDS
from gateway.state.tenants import Tenant
from tests.gateway.fakes import BOB, Clock, FakeBackend, Rig, until

FORMS: Json = {"elicitation": {}}
YES: Json = {"approval": {"action": "accept", "content": {"approve": True}}}
DROP: Json = {"name": "lab_echo", "arguments": {"what": "everything"}}


def dangerous(answer: Any = None) -> FakeBackend:
    return FakeBackend("lab", answer, manifest=Manifest(effects={"echo": 3}))


async def asked(rig: Rig, params: Json = DROP, **more: Any) -> Json:
    return (await rig.modern("tools/call", params, capabilities=FORMS, **more)).json["result"]


async def retried(rig: Rig, question: Json, change: Json | None = None, responses: Json = YES, **more: Any) -> Json:
    params = {**DROP, "requestState": question["requestState"], "inputResponses": responses, **(change or {})}
    return (await rig.modern("tools/call", params, capabilities=FORMS, **more)).json


def kind(answer: Json) -> str:
    return answer["result"]["structuredContent"]["error"]["kind"]


async def test_a_modern_client_is_asked_and_the_approved_call_runs_once() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        question = await asked(rig)
        assert question["resultType"] == "input_required"
        shown = question["inputRequests"]["approval"]["params"]
        assert "lab.echo" in shown["message"]
        assert "everything" in shown["message"]
        assert backend.calls == []
        answer = await retried(rig, question)
        assert answer["result"]["structuredContent"] == {"got": {"what": "everything"}}
        again = await retried(rig, question)
        assert kind(again) == "approval_required"
        assert "used already" in again["result"]["content"][0]["text"]
    # The backend sees neither our state nor the answer to our question.
    assert [call.params.keys() & {"requestState", "inputResponses"} for call in backend.calls] == [set()]
    rows = [(row[8], row[11]) for row in rig.log.rows]
    assert rows == [("ask", "input_required"), ("allow", "ok"), ("deny", "approval_required")]


@pytest.mark.parametrize("change", [{"arguments": {"what": "a little"}}, {"name": "lab.echo"}, {"arguments": {}}])
async def test_an_approval_is_of_no_use_for_another_request(change: Json) -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        refused = await retried(rig, await asked(rig), change)
        assert refused["error"]["data"] == {"reason": "invalid_request_state"}
    assert backend.calls == []


async def test_an_approval_is_of_no_use_to_another_principal() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        refused = await retried(rig, await asked(rig), caller=BOB)
        assert refused["error"]["data"] == {"reason": "invalid_request_state"}
    assert backend.calls == []


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"approve": False}},
        {"action": "accept", "content": {"approve": "true"}},
        {"content": {"approve": True}},
    ],
)
async def test_anything_but_a_clear_yes_is_a_no_for_good(answer: Json) -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        question = await asked(rig)
        assert kind(await retried(rig, question, responses={"approval": answer})) == "denied"
        assert kind(await retried(rig, question)) == "approval_required", "a no cannot be turned into a yes"
    assert backend.calls == []


async def test_a_client_that_comes_back_without_an_answer_is_asked_again() -> None:
    async with Rig(dangerous()) as rig:
        again = await retried(rig, await asked(rig), responses={})
        assert again["result"]["resultType"] == "input_required"


async def test_a_backend_that_asks_in_its_turn_does_so_under_the_same_approval() -> None:
    async def careful(call: Call) -> Json:
        if call.params.get("requestState") == "mine":
            return {"content": [], "structuredContent": {"sure": call.params["inputResponses"]["sure"]}}
        form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Sure?"}}
        return {"resultType": "input_required", "inputRequests": {"sure": form}, "requestState": "mine"}

    backend = dangerous(careful)
    async with Rig(backend) as rig:
        second = (await retried(rig, await asked(rig)))["result"]
        assert second["inputRequests"].keys() == {"sure"}
        third = await retried(rig, second, responses={"sure": {"action": "accept"}})
        assert third["result"]["structuredContent"] == {"sure": {"action": "accept"}}
        assert kind(await retried(rig, second, responses={"sure": {"action": "accept"}})) == "approval_required"
    assert len(backend.calls) == 2


async def test_what_was_approved_is_the_tool_as_it_was() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        question = await asked(rig)
        changed = {"name": "echo", "description": "Now much worse.", "inputSchema": {"type": "object"}}
        backend.offered = FakeBackend(tools=(changed,)).offered
        await rig.catalogue.refresh(backend)
        refused = await retried(rig, question)
        assert "has changed" in refused["result"]["content"][0]["text"]
    assert backend.calls == []


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}])
async def test_a_client_that_cannot_be_asked_is_told_that_approval_is_required(capabilities: Json) -> None:
    async with Rig(dangerous()) as rig:
        answer = (await rig.modern("tools/call", DROP, capabilities=capabilities)).json
        assert kind(answer) == "approval_required"
        assert "_meta" in answer["result"]["structuredContent"]["error"]["suggested_fix"]


async def test_the_callers_own_word_is_enough_and_nobody_is_asked() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        answer = (await rig.modern("tools/call", DROP, capabilities=FORMS, meta={"approved": "true"})).json
        assert "structuredContent" in answer["result"]
    assert len(backend.calls) == 1


def test_a_question_is_good_for_ten_minutes() -> None:
    assert STATE_SECONDS == ANSWER_SECONDS == 600


# ---- the handshake era


async def test_a_handshake_client_is_asked_on_the_calls_own_stream() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        paper, task = rig.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        assert backend.calls == []
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        await asyncio.wait_for(task, 5)
        assert paper.last["result"]["structuredContent"] == {"got": {"what": "everything"}}
    assert len(backend.calls) == 1


async def test_a_handshake_client_that_does_not_approve_is_denied() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        paper, task = rig.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        await rig.answer(session, {"id": request["id"], "result": {"action": "decline"}})
        await asyncio.wait_for(task, 5)
        assert kind(paper.last) == "denied"
    assert backend.calls == []


async def test_a_handshake_client_that_answers_after_ten_minutes_is_too_late() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        clock = Clock()
        session = await rig.session(capabilities=FORMS)
        paper, task = rig.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        for _ in range(10):  # what was sent is waited for only a few turns later
            await asyncio.sleep(0)
        await clock.forward(ANSWER_SECONDS + 1)
        await asyncio.wait_for(task, 5)
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        assert kind(paper.last) == Kind.TIMEOUT
    assert backend.calls == []


async def test_a_tenant_made_read_only_while_a_person_thinks_stays_read_only() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        paper, task = rig.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        rig.tenants["acme"] = Tenant("acme", read_only=True)
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        await asyncio.wait_for(task, 5)
        assert kind(paper.last) == "denied"
    assert backend.calls == []


async def test_an_answer_to_another_worker_is_left_for_it() -> None:
    async with Rig(dangerous()) as rig, Rig(dangerous(), worker="w2") as there:
        session = await rig.session(capabilities=FORMS)
        paper, _ = there.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        ((_, id, value),) = rig.rows.answers
        assert (id, "accept" in value) == (request["id"], True)
        other = await rig.session(capabilities=FORMS)
        for stranger, id in ((session, "their-own-id"), (session, "gth.w2.1"), (other, request["id"])):
            assert (await rig.answer(stranger, {"id": id, "result": {}})).status == 202
        assert len(rig.rows.answers) == 1


async def test_an_answer_left_by_another_worker_finds_its_call() -> None:
    backend = dangerous()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        paper, task = rig.begin_legacy(session, "tools/call", DROP)
        (request,) = await until(lambda: paper.sent("elicitation/create"))
        (heard,) = rig.rows.listeners
        value = '{"result":{"action":"accept","content":{"approve":true}},"error":null}'
        heard("another session's digest", request["id"], value)
        await asyncio.sleep(0)
        assert not task.done()
        digest = next(iter(rig.asking._open.values()))[0]
        heard(digest, request["id"], value)
        await asyncio.wait_for(task, 5)
    assert len(backend.calls) == 1
