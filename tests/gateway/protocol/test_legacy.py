"""The handshake era: sessions, streams that can be resumed, questions, cancellation."""

import asyncio
import json
from typing import Any

import pytest

from gateway.catalogue.catalogue import Endpoint
from gateway.contract import Call, Caller, Change, Json
from tests.gateway.fakes import ALICE, BOB, HANDSHAKE, SCOPES, FakeBackend, Rig, echo, until

FORM: Json = {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}


def initialize(**params: Any) -> bytes:
    given = {"protocolVersion": "2025-11-25", "capabilities": {}, **params}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": given}).encode()


class Gate:
    """A backend's answer that waits until it is opened, and notes how it ended."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, call: Call) -> Json:
        self.running.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await echo(call)


# ---- sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"), [*((each, each) for each in HANDSHAKE), ("2026-07-28", "2025-11-25"), ("1999", "2025-11-25")]
)
async def test_initialize_answers_with_the_version_asked_for_or_the_newest_of_the_era(asked: str, given: str) -> None:
    async with Rig(FakeBackend(instructions="Hi.")) as rig:
        paper = await rig.request(initialize(protocolVersion=asked))
    result = paper.json["result"]
    assert (paper.status, result["protocolVersion"], result["instructions"]) == (200, given, "## lab\nHi.")
    assert result["serverInfo"]["name"] == "gatehouse"
    assert "extensions" not in result["capabilities"]
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert 0 < len(paper.headers["mcp-session-id"]) <= 2048


@pytest.mark.parametrize("params", [{"protocolVersion": None}, {"protocolVersion": 7}, {"capabilities": []}])
async def test_an_initialize_that_is_refused_opens_no_session(params: Json) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.request(initialize(**params))
    assert (paper.status, paper.json["error"]["code"]) == (200, -32602)
    assert "mcp-session-id" not in paper.headers


async def test_whatever_a_client_says_of_itself_the_session_it_gets_works() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.request(initialize(clientInfo="curl"))
        if "error" not in paper.json:
            assert (await rig.legacy(paper.headers["mcp-session-id"], "ping")).status == 200


async def test_without_a_session_there_is_no_service() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.legacy(None, "tools/list", id="q")
        assert (paper.status, paper.json["error"]["code"], paper.json["id"]) == (400, -32600, "q")
        for verb in ("GET", "DELETE"):
            assert (await rig.request(verb=verb, headers={"accept": "text/event-stream"})).status == 400


@pytest.mark.parametrize("caller", [BOB, Caller("other", "alice", scopes=SCOPES)])
async def test_another_principals_session_is_not_found(caller: Caller) -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for verb in ("GET", "DELETE"):
            headers = {"mcp-session-id": session, "accept": "text/event-stream"}
            assert (await rig.request(verb=verb, headers=headers, caller=caller)).status == 404
        paper = await rig.legacy(session, "ping", caller=caller)
        assert (paper.status, paper.json["error"]["code"]) == (404, -32001)
        assert (await rig.legacy(session, "ping")).status == 200


@pytest.mark.parametrize("id", ["", "x", "v1.AAAA", "v1." + "A" * 3000, "é"])
async def test_a_session_id_that_is_not_ours_is_not_found(id: str) -> None:
    async with Rig(FakeBackend()) as rig:
        assert (await rig.legacy(id, "ping")).status == 404


async def test_an_ended_session_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        session, other = await rig.session(), await rig.session()
        ended = await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        assert ended.status == 204
        assert (await rig.legacy(session, "ping")).status == 404
        assert (await rig.request(verb="DELETE", headers={"mcp-session-id": session})).status == 404
        assert (await rig.legacy(other, "ping")).status == 200


async def test_a_session_serves_every_endpoint_and_needs_no_lookup() -> None:
    async with Rig(FakeBackend(), endpoints=[Endpoint("/mcp/lab", "bare", ("lab",))]) as rig:
        session = await rig.session(path="/mcp/lab")
        listed = (await rig.legacy(session, "tools/list")).json["result"]["tools"]
        bare = (await rig.legacy(session, "tools/list", path="/mcp/lab")).json["result"]["tools"]
        assert ([each["name"] for each in listed], [each["name"] for each in bare]) == (["lab_echo"], ["echo"])
        assert (await rig.legacy(session, "ping", path="/mcp/no")).status == 404


async def test_a_stream_at_an_endpoint_that_is_not_there_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        paper, task = rig.begin_get(session, path="/mcp/no")
        await until(lambda: paper.status)
        assert paper.status == 404
        await task


# ---- requests ---------------------------------------------------------------------------------------------------


async def test_an_answer_is_one_json_object_without_what_is_newer() -> None:
    async def answer(call: Call) -> Json:
        return {**await echo(call), "resultType": "complete", "ttlMs": 1, "cacheScope": "private"}

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        paper = await rig.legacy(session, "tools/call", {"name": "lab_echo"}, id="x", headers={"x-correlation-id": "c"})
    assert paper.headers["content-type"] == "application/json"
    assert paper.json == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {
            "content": [{"type": "text", "text": "hello"}],
            "structuredContent": {"got": {}},
            "_meta": {"correlation_id": "c"},
        },
    }


async def test_lists_have_no_cache_hints_in_this_era() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = (await rig.legacy(session, method)).json["result"]
            assert not {"resultType", "ttlMs", "cacheScope"} & result.keys()


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "no/such", "notifications/initialized"])
async def test_a_method_of_another_era_or_none_is_not_found(method: str) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.legacy(await rig.session(), method, {"notifications": {}})
    assert (paper.status, paper.json["error"]["code"], paper.json["error"]["data"]) == (200, -32601, method)


async def test_a_client_that_names_event_streams_first_gets_one() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        headers = {"accept": "text/event-stream, application/json"}
        paper = await rig.legacy(session, "tools/call", {"name": "lab_echo"}, headers=headers)
    assert paper.headers["content-type"] == "text/event-stream"
    assert [each["id"] for each in paper.messages] == [1]
    assert paper.closed


async def test_what_is_not_json_is_refused_with_its_code() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for body, code in ((b"{", -32700), (b"[{}]", -32600), (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600)):
            paper = await rig.request(body, {"mcp-session-id": session})
            assert (paper.status, paper.json["error"]["code"]) == (400, code)


# ---- log levels -------------------------------------------------------------------------------------------------


async def noisy(call: Call) -> Json:
    for level in ("debug", "notice", "error"):
        await call.wire.notify("notifications/message", {"level": level, "data": level})
    return await echo(call)


@pytest.mark.parametrize(
    ("level", "heard"),
    [(None, ["debug", "notice", "error"]), ("notice", ["notice", "error"]), ("emergency", [])],
)
async def test_a_session_hears_what_is_as_loud_as_it_asked_for(level: str | None, heard: list[str]) -> None:
    async with Rig(FakeBackend(answer=noisy)) as rig:
        session, other = await rig.session(), await rig.session()
        await rig.legacy(other, "logging/setLevel", {"level": "alert"})
        if level is not None:
            assert (await rig.legacy(session, "logging/setLevel", {"level": level})).json["result"] == {}
        paper = await rig.legacy(session, "tools/call", {"name": "lab_echo"})
    said = [each["params"]["level"] for each in paper.sent("notifications/message")] if paper.opened else []
    assert said == heard


@pytest.mark.parametrize("level", ["loud", 7, None])
async def test_a_level_that_is_none_is_refused(level: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.legacy(await rig.session(), "logging/setLevel", {"level": level})
        assert paper.json["error"]["code"] == -32602


# ---- cancellation -----------------------------------------------------------------------------------------------


async def test_a_cancelled_request_is_stopped_and_answered() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        told = await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
        assert (told.status, told.body) == (202, b"")
        assert gate.cancelled
        assert (paper.status, paper.json["id"], paper.json["error"]["code"]) == (200, "q", -32800)
        assert [row[11] for row in rig.log.rows if row[5] == "tools/call"] == ["cancelled"]


async def test_a_cancelled_request_gets_the_error_object_of_every_other_failure() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id="q")
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": "q"}, id=None)
        await asyncio.wait_for(task, 5)
    data = paper.json["error"].get("data") or {}
    assert (data.get("kind"), data.get("correlation_id")) == ("cancelled", paper.headers["x-correlation-id"])


@pytest.mark.parametrize("id", ["1", 2, None, [1], {"a": 1}, 1.0])
async def test_cancelling_what_does_not_run_does_nothing(id: Any) -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        assert (await rig.legacy(session, "notifications/cancelled", {"requestId": id}, id=None)).status == 202
        gate.open.set()
        await task
    assert "result" in paper.json


async def test_one_session_cannot_cancel_anothers_request() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session, other = await rig.session(), await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(other, "notifications/cancelled", {"requestId": 1}, id=None)
        gate.open.set()
        await task
    assert "result" in paper.json


async def test_nothing_is_kept_of_requests_that_ended() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        _, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"}, id=1)
        await gate.running.wait()
        await rig.legacy(session, "notifications/cancelled", {"requestId": 1}, id=None)
        await task
        legacy = rig.entry._legacy
        assert (legacy._running, legacy._cancelled, rig.pulse._living) == ({}, set(), set())


async def test_a_client_that_leaves_does_not_cancel_in_this_era() -> None:
    gate = Gate()
    async with Rig(FakeBackend(answer=gate)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await gate.running.wait()
        paper.leave()
        gate.open.set()
        await task
    assert not gate.cancelled


# ---- questions --------------------------------------------------------------------------------------------------


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


# ---- resumption -------------------------------------------------------------------------------------------------


class Steps:
    """An answer that says one step each time it is let go on."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]

    async def __call__(self, call: Call) -> Json:
        for number, gate in enumerate(self.gates):
            await gate.wait()
            await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": number})
        return await echo(call)


@pytest.mark.parametrize("seen", [0, 1, 2])
async def test_a_resumed_stream_brings_exactly_what_was_missed(seen: int) -> None:
    steps = Steps(3)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo", "_meta": {"progressToken": 1}})
        steps.gates[0].set()
        steps.gates[1].set()
        await until(lambda: len(paper.events) == 2)
        primed = paper.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        last = [primed, *(each.id for each in paper.events)][seen]
        paper.leave()
        resumed, watching = rig.begin_get(session, last)
        steps.gates[2].set()
        await asyncio.gather(task, watching)
    progress = [each["params"]["progress"] for each in resumed.messages[:-1]]
    assert progress == [0, 1, 2][seen:]
    assert resumed.messages[-1]["id"] == 1
    assert resumed.closed


async def test_a_stream_that_is_over_can_still_be_read_to_its_end() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        resumed, watching = rig.begin_get(session, paper.events[0].id)
        await asyncio.wait_for(watching, 5)
    assert [each.get("id") for each in resumed.messages] == [1]
    assert resumed.closed


async def test_the_stream_of_another_session_is_not_found() -> None:
    steps = Steps(1)
    async with Rig(FakeBackend(answer=steps)) as rig:
        session, other = await rig.session(), await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        steps.gates[0].set()
        await task
        last = paper.events[0].id
        for who, event in (
            (other, last),
            (session, "w1.0000.1"),
            (session, last.rpartition(".")[0] + ".x"),
            (session, ""),
        ):
            refused, watching = rig.begin_get(who, event)
            await watching
            assert (refused.status, refused.json["error"]["code"]) == (404, -32001)


async def test_a_backend_may_hang_up_and_the_client_comes_back_for_the_rest() -> None:
    go_on = asyncio.Event()

    async def answer(call: Call) -> Json:
        await call.wire.hang_up()
        await go_on.wait()
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        paper, task = rig.begin_legacy(session, "tools/call", {"name": "lab_echo"})
        await until(lambda: paper.closed)
        primed = paper.chunks[0].splitlines()[0].removeprefix(b"id: ").decode()
        resumed, watching = rig.begin_get(session, primed)
        await until(lambda: resumed.opened)
        go_on.set()
        await asyncio.gather(task, watching)
    assert resumed.messages[-1]["result"]["content"]


async def test_a_session_older_than_priming_gets_no_event_without_data() -> None:
    async with Rig(FakeBackend(answer=noisy)) as rig:
        paper = await rig.legacy(await rig.session("2025-06-18"), "tools/call", {"name": "lab_echo"})
    assert b"data: \n" not in b"".join(paper.chunks)
    assert len(paper.events) == 4


# ---- subscriptions ----------------------------------------------------------------------------------------------


def watched(**more: Any) -> FakeBackend:
    return FakeBackend(resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}), **more)


async def test_a_subscribed_resource_is_told_of_on_the_standing_stream() -> None:
    backend = watched()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        stream, task = rig.begin_get(session)
        await until(lambda: stream.opened)
        assert (await rig.legacy(session, "resources/subscribe", {"uri": uri})).json["result"] == {}
        assert backend.watches[-1] == {"x:a"}
        backend.say(Change("resource", "x:b"))
        backend.say(Change("resource", "x:a"))
        (told,) = await until(lambda: stream.sent("notifications/resources/updated"))
        assert told["params"] == {"uri": uri}
        await rig.legacy(session, "resources/unsubscribe", {"uri": uri})
        assert backend.watches[-1] == frozenset()
        stream.leave()
        await task


async def test_a_resource_that_is_not_in_view_cannot_be_subscribed_to() -> None:
    async with Rig(watched()) as rig:
        paper = await rig.legacy(await rig.session(), "resources/subscribe", {"uri": "gatehouse://no/x"})
    assert (paper.json["error"]["code"], paper.json["error"]["data"]["uri"]) == (-32002, "gatehouse://no/x")


async def test_the_end_of_a_session_ends_what_was_watched_for_it() -> None:
    backend = watched()
    async with Rig(backend) as rig:
        session = await rig.session()
        uri = (await rig.legacy(session, "resources/list")).json["result"]["resources"][0]["uri"]
        await rig.legacy(session, "resources/subscribe", {"uri": uri})
        await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        assert backend.watches[-1] == frozenset()
        assert rig.hub._wants == {}


async def test_a_call_is_made_as_the_caller_of_the_request_not_of_the_session() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        session = await rig.session()
        await rig.legacy(session, "tools/call", {"name": "lab_echo"}, caller=Caller("acme", "alice", scopes=SCOPES))
    assert backend.calls[0].caller.credential == ""
    assert backend.calls[0].caller.principal == ALICE.principal
