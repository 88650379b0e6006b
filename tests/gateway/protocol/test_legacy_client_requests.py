"""The handshake era: requests of a backend to the client."""

from gateway.contract import Call, Json
from tests.gateway.fakes import FakeBackend, Rig, until

FORM: Json = {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}


async def ask_client(call: Call) -> Json:
    answers = await call.wire.ask({"it": FORM})
    return {"content": [], "structuredContent": answers["it"]}


async def test_client_request_is_sent_on_the_stream_of_the_call_and_its_answer_is_returned() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (client_request,) = await until(lambda: response.sent("elicitation/create"))
        assert client_request["params"] == FORM["params"]
        answer = {"action": "accept", "content": {"name": "x"}}
        assert (await rig.answer(session, {"id": client_request["id"], "result": answer})).status == 202
        await task
    assert response.final_message["result"]["structuredContent"] == answer


async def test_only_the_requested_session_can_answer() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        session, other = [await rig.session(capabilities={"elicitation": {}}) for _ in range(2)]
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (client_request,) = await until(lambda: response.sent("elicitation/create"))
        await rig.answer(
            other, {"id": client_request["id"], "result": {"action": "accept", "content": {"name": "evil"}}}
        )
        await rig.answer(session, {"id": client_request["id"], "result": {"action": "decline"}})
        await task
    assert response.final_message["result"]["structuredContent"] == {"action": "decline"}


async def test_error_answer_of_the_client_is_returned_unchanged() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (client_request,) = await until(lambda: response.sent("elicitation/create"))
        await rig.answer(session, {"id": client_request["id"], "error": {"code": -1, "message": "no", "data": 7}})
        await task
    assert response.final_message["error"] == {"code": -1, "message": "no", "data": 7}


async def test_client_without_the_capability_gets_an_unsupported_error() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        response = await rig.legacy(await rig.session(), "tools/call", {"name": "lab_echo"})
    assert response.json["result"]["structuredContent"]["error"]["kind"] == "unsupported"


async def test_cancelled_client_request_is_removed() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await until(lambda: response.sent("elicitation/create"))
        await rig.legacy(session, "notifications/cancelled", {"requestId": 1}, id=None)
        await task
        assert response.final_message["error"]["code"] == -32800
        assert rig.client_requests._pending == {}


async def test_ending_a_session_cancels_only_its_own_calls() -> None:
    async with Rig(FakeBackend(answer=ask_client)) as rig:
        ended, other = [await rig.session(capabilities={"elicitation": {}}) for _ in range(2)]
        (response, task), (stays, _) = [
            rig.begin_legacy(each, "tools/call", {"name": "lab_echo"}) for each in (ended, other)
        ]
        await until(lambda: response.sent("elicitation/create") and stays.sent("elicitation/create"))
        assert (await rig.request(headers={"mcp-session-id": ended}, verb="DELETE")).status == 204
        await task
        assert response.final_message["error"]["code"] == -32800
        assert len(rig.client_requests._pending) == 1


async def test_input_required_result_becomes_client_requests() -> None:
    async def answer(call: Call) -> Json:
        if "inputResponses" not in call.params:
            return {"resultType": "input_required", "inputRequests": {"who": FORM}, "requestState": "s1"}
        return {"content": [], "structuredContent": {k: call.params[k] for k in ("inputResponses", "requestState")}}

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        response, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (client_request,) = await until(lambda: response.sent("elicitation/create"))
        await rig.answer(session, {"id": client_request["id"], "result": {"action": "accept"}})
        await task
    content = response.final_message["result"]["structuredContent"]
    assert content == {"inputResponses": {"who": {"action": "accept"}}, "requestState": "s1"}
