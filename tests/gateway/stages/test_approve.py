"""Approval of destructive calls: in both protocol eras, bound to one request, usable once."""

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
DROP_CALL: Json = {"name": "lab_echo", "arguments": {"what": "everything"}}


def destructive_backend(answer: Any = None) -> FakeBackend:
    return FakeBackend("lab", answer, manifest=Manifest(effects={"echo": 3}))


async def request_approval(rig: Rig, params: Json = DROP_CALL, **more: Any) -> Json:
    return (await rig.modern("tools/call", params, capabilities=FORMS, **more)).json["result"]


async def retry(rig: Rig, question: Json, change: Json | None = None, responses: Json = YES, **more: Any) -> Json:
    params = {**DROP_CALL, "requestState": question["requestState"], "inputResponses": responses, **(change or {})}
    return (await rig.modern("tools/call", params, capabilities=FORMS, **more)).json


def error_kind(answer: Json) -> str:
    return answer["result"]["structuredContent"]["error"]["kind"]


async def test_modern_client_gets_an_approval_request_and_the_approved_call_runs_once() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        question = await request_approval(rig)
        assert question["resultType"] == "input_required"
        prompt = question["inputRequests"]["approval"]["params"]
        assert "lab.echo" in prompt["message"]
        assert "everything" in prompt["message"]
        assert backend.calls == []
        answer = await retry(rig, question)
        assert answer["result"]["structuredContent"] == {"got": {"what": "everything"}}
        again = await retry(rig, question)
        assert error_kind(again) == "approval_required"
        assert "The approval was already used." in again["result"]["content"][0]["text"]
    # The backend receives neither the gateway's state nor the answer to its approval request.
    assert [call.params.keys() & {"requestState", "inputResponses"} for call in backend.calls] == [set()]
    rows = [(row[8], row[11]) for row in rig.audit_log.rows]
    assert rows == [("ask", "input_required"), ("allow", "ok"), ("deny", "approval_required")]


@pytest.mark.parametrize("change", [{"arguments": {"what": "a little"}}, {"name": "lab.echo"}, {"arguments": {}}])
async def test_approval_is_rejected_for_another_request(change: Json) -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        rejected = await retry(rig, await request_approval(rig), change)
        assert rejected["error"]["data"] == {"reason": "invalid_request_state"}
    assert backend.calls == []


async def test_approval_is_rejected_for_another_principal() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        rejected = await retry(rig, await request_approval(rig), caller=BOB)
        assert rejected["error"]["data"] == {"reason": "invalid_request_state"}
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
async def test_any_answer_other_than_approve_true_denies_the_request_permanently(answer: Json) -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        question = await request_approval(rig)
        assert error_kind(await retry(rig, question, responses={"approval": answer})) == "denied"
        assert error_kind(await retry(rig, question)) == "approval_required", "a denied approval cannot be changed"
    assert backend.calls == []


async def test_retry_without_an_answer_gets_the_approval_request_again() -> None:
    async with Rig(destructive_backend()) as rig:
        again = await retry(rig, await request_approval(rig), responses={})
        assert again["result"]["resultType"] == "input_required"


async def test_input_requests_of_the_backend_continue_under_the_same_approval() -> None:
    async def backend_answer(call: Call) -> Json:
        if call.params.get("requestState") == "mine":
            return {"content": [], "structuredContent": {"sure": call.params["inputResponses"]["sure"]}}
        form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Sure?"}}
        return {"resultType": "input_required", "inputRequests": {"sure": form}, "requestState": "mine"}

    backend = destructive_backend(backend_answer)
    async with Rig(backend) as rig:
        second = (await retry(rig, await request_approval(rig)))["result"]
        assert second["inputRequests"].keys() == {"sure"}
        third = await retry(rig, second, responses={"sure": {"action": "accept"}})
        assert third["result"]["structuredContent"] == {"sure": {"action": "accept"}}
        assert error_kind(await retry(rig, second, responses={"sure": {"action": "accept"}})) == "approval_required"
    assert len(backend.calls) == 2


async def test_approval_is_rejected_after_the_tool_definition_changed() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        question = await request_approval(rig)
        changed = {"name": "echo", "description": "Now much worse.", "inputSchema": {"type": "object"}}
        backend.lists = FakeBackend(tools=(changed,)).lists
        await rig.catalogue.refresh(backend)
        rejected = await retry(rig, question)
        assert "has changed" in rejected["result"]["content"][0]["text"]
    assert backend.calls == []


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"sampling": {}}])
async def test_client_without_form_elicitation_gets_approval_required(capabilities: Json) -> None:
    async with Rig(destructive_backend()) as rig:
        answer = (await rig.modern("tools/call", DROP_CALL, capabilities=capabilities)).json
        assert error_kind(answer) == "approval_required"
        assert "_meta" in answer["result"]["structuredContent"]["error"]["suggested_fix"]


async def test_approved_flag_in_meta_skips_the_approval_request() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        answer = (await rig.modern("tools/call", DROP_CALL, capabilities=FORMS, meta={"approved": "true"})).json
        assert "structuredContent" in answer["result"]
    assert len(backend.calls) == 1


def test_approval_request_expires_after_ten_minutes() -> None:
    assert STATE_SECONDS == ANSWER_SECONDS == 600


# ---- the handshake era


async def test_handshake_client_gets_the_approval_request_on_the_stream_of_the_call() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        response, task = rig.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        assert backend.calls == []
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        await asyncio.wait_for(task, 5)
        assert response.final_message["result"]["structuredContent"] == {"got": {"what": "everything"}}
    assert len(backend.calls) == 1


async def test_handshake_client_that_declines_is_denied() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        response, task = rig.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        await rig.answer(session, {"id": request["id"], "result": {"action": "decline"}})
        await asyncio.wait_for(task, 5)
        assert error_kind(response.final_message) == "denied"
    assert backend.calls == []


async def test_answer_of_a_handshake_client_after_ten_minutes_is_ignored() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        clock = Clock()
        session = await rig.session(capabilities=FORMS)
        response, task = rig.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        for _ in range(10):  # the call starts to wait a few event loop turns after the send
            await asyncio.sleep(0)
        await clock.forward(ANSWER_SECONDS + 1)
        await asyncio.wait_for(task, 5)
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        assert error_kind(response.final_message) == Kind.TIMEOUT
    assert backend.calls == []


async def test_call_is_denied_if_the_tenant_became_read_only_during_the_approval() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        response, task = rig.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        rig.tenants["acme"] = Tenant("acme", read_only=True)
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        await asyncio.wait_for(task, 5)
        assert error_kind(response.final_message) == "denied"
    assert backend.calls == []


async def test_answer_for_another_worker_is_stored_for_it() -> None:
    async with Rig(destructive_backend()) as rig, Rig(destructive_backend(), worker="w2") as other_worker:
        session = await rig.session(capabilities=FORMS)
        response, _ = other_worker.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        await rig.answer(session, {"id": request["id"], "result": YES["approval"]})
        ((_, id, value),) = rig.session_store.answers
        assert (id, "accept" in value) == (request["id"], True)
        other = await rig.session(capabilities=FORMS)
        for sender, id in ((session, "their-own-id"), (session, "gth.w2.1"), (other, request["id"])):
            assert (await rig.answer(sender, {"id": id, "result": {}})).status == 202
        assert len(rig.session_store.answers) == 1


async def test_answer_received_by_another_worker_completes_the_call() -> None:
    backend = destructive_backend()
    async with Rig(backend) as rig:
        session = await rig.session(capabilities=FORMS)
        response, task = rig.begin_legacy(session, "tools/call", DROP_CALL)
        (request,) = await until(lambda: response.sent("elicitation/create"))
        (receive_answer,) = rig.session_store.listeners
        value = '{"result":{"action":"accept","content":{"approve":true}},"error":null}'
        receive_answer("another session's digest", request["id"], value)
        await asyncio.sleep(0)
        assert not task.done()
        digest = next(iter(rig.client_requests._pending.values()))[0]
        receive_answer(digest, request["id"], value)
        await asyncio.wait_for(task, 5)
    assert len(backend.calls) == 1
