"""The handshake era: a backend asks the client."""

from gateway.contract import Call, Json
from tests.gateway.fakes import FakeBackend, Rig, until

FORM: Json = {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}


async def asks(call: Call) -> Json:
    answers = await call.wire.ask({"it": FORM})
    return {"content": [], "structuredContent": answers["it"]}


async def test_a_question_goes_out_on_the_calls_own_stream_and_its_answer_comes_back() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (question,) = await until(lambda: paper.sent("elicitation/create"))
        assert question["params"] == FORM["params"]
        answer = {"action": "accept", "content": {"name": "x"}}
        assert (await rig.answer(session, {"id": question["id"], "result": answer})).status == 202
        await task
    assert paper.last["result"]["structuredContent"] == answer


async def test_only_the_session_that_was_asked_can_answer() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        session, other = [await rig.session(capabilities={"elicitation": {}}) for _ in range(2)]
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (question,) = await until(lambda: paper.sent("elicitation/create"))
        await rig.answer(other, {"id": question["id"], "result": {"action": "accept", "content": {"name": "evil"}}})
        await rig.answer(session, {"id": question["id"], "result": {"action": "decline"}})
        await task
    assert paper.last["result"]["structuredContent"] == {"action": "decline"}


async def test_a_refusal_of_the_client_reaches_the_caller_as_it_is() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (question,) = await until(lambda: paper.sent("elicitation/create"))
        await rig.answer(session, {"id": question["id"], "error": {"code": -1, "message": "no", "data": 7}})
        await task
    assert paper.last["error"] == {"code": -1, "message": "no", "data": 7}


async def test_a_client_that_cannot_be_asked_is_not_asked() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        paper = await rig.legacy(await rig.session(), "tools/call", {"name": "lab_echo"})
    assert paper.json["result"]["structuredContent"]["error"]["kind"] == "unsupported"


async def test_a_cancelled_question_is_forgotten() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await until(lambda: paper.sent("elicitation/create"))
        await rig.legacy(session, "notifications/cancelled", {"requestId": 1}, id=None)
        await task
        assert paper.last["error"]["code"] == -32800
        assert rig.asking._open == {}


async def test_the_end_of_a_session_ends_its_calls_and_nobody_elses() -> None:
    async with Rig(FakeBackend(answer=asks)) as rig:
        mine, other = [await rig.session(capabilities={"elicitation": {}}) for _ in range(2)]
        (paper, task), (stays, _) = [
            rig.begin_legacy(each, "tools/call", {"name": "lab_echo"}) for each in (mine, other)
        ]
        await until(lambda: paper.sent("elicitation/create") and stays.sent("elicitation/create"))
        assert (await rig.request(headers={"mcp-session-id": mine}, verb="DELETE")).status == 204
        await task
        assert paper.last["error"]["code"] == -32800
        assert len(rig.asking._open) == 1


async def test_an_input_required_result_becomes_questions_for_this_era() -> None:
    async def answer(call: Call) -> Json:
        if "inputResponses" not in call.params:
            return {"resultType": "input_required", "inputRequests": {"who": FORM}, "requestState": "s1"}
        return {"content": [], "structuredContent": {k: call.params[k] for k in ("inputResponses", "requestState")}}

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session(capabilities={"elicitation": {}})
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        (question,) = await until(lambda: paper.sent("elicitation/create"))
        await rig.answer(session, {"id": question["id"], "result": {"action": "accept"}})
        await task
    said = paper.last["result"]["structuredContent"]
    assert said == {"inputResponses": {"who": {"action": "accept"}}, "requestState": "s1"}
