"""2026-07-28: the ladder, the answers, cancellation by leaving."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import MODERN, Call, Json
from tests.gateway.fakes import BOB, FakeBackend, Rig, echo, until

META = "io.modelcontextprotocol/"
MIRRORED: Json = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}
ASKS: Json = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Who?", "mode": "form"}}},
    "requestState": "step1",
}


def body(method: str = "tools/call", *, id: Any = 1, meta: Any = None, **params: Any) -> bytes:
    envelope = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
    params["_meta"] = envelope if meta is None else meta
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


# ---- the ladder -------------------------------------------------------------------------------------------------

GOOD = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "lab_echo"}


@pytest.mark.parametrize(
    ("sent", "headers", "status", "code"),
    [
        (b"{", GOOD, 400, -32700),
        (b"[]", GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', GOOD, 400, -32602),
        (body(meta={f"{META}protocolVersion": MODERN}), GOOD, 400, -32602),
        (body(meta={f"{META}clientCapabilities": {}}), GOOD, 400, -32602),
        (
            body(meta={f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": []}, name="lab_echo"),
            GOOD, 400, -32602,
        ),
        (body(name="lab_echo"), {**GOOD, "mcp-method": None}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-method": "TOOLS/CALL"}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-name": None}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-name": "lab_other"}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-protocol-version": "2099-01-01"}, 400, -32020),
        (
            body(name="lab_echo", meta={f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}),
            {**GOOD, "mcp-protocol-version": "2099-01-01"}, 400, -32022,
        ),
        (body("initialize"), {**GOOD, "mcp-method": "initialize"}, 404, -32601),
        (body("ping"), {**GOOD, "mcp-method": "ping"}, 404, -32601),
        (body("logging/setLevel"), {**GOOD, "mcp-method": "logging/setLevel"}, 404, -32601),
        (body("resources/subscribe", uri="x:y"), {**GOOD, "mcp-method": "resources/subscribe"}, 404, -32601),
        (body(name="nowhere"), {**GOOD, "mcp-name": "nowhere"}, 400, -32602),
    ],
)  # fmt: skip
async def test_each_rung_answers_with_its_own_code_and_status(
    sent: bytes, headers: Json, status: int, code: int
) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.request(sent, headers)
    assert (paper.status, paper.json["error"]["code"]) == (status, code)
    assert paper.headers["content-type"] == "application/json"


async def test_the_first_rung_that_fails_is_the_one_that_is_told() -> None:
    """Everything is wrong with it; mending one thing at a time brings the next rung's answer."""
    async with Rig(FakeBackend()) as rig:
        bad = {"mcp-protocol-version": "2099-01-01", "mcp-method": "ping", "mcp-name": "no"}
        other = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": 7, f"{META}logLevel": "loud"}
        seen = [
            (await rig.request(b"{", bad, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), bad, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), bad)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), bad)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), {**bad, "mcp-method": "no/such"})).json["error"]["code"],
        ]
        bad |= {"mcp-protocol-version": MODERN, "mcp-method": "no/such"}
        for mend in ({"protocolVersion": MODERN}, {"clientCapabilities": {}}, {"logLevel": "error"}):
            other |= {META + key: value for key, value in mend.items()}
            seen.append((await rig.request(body("no/such", meta=other), bad)).json["error"]["code"])
    assert seen == [-32700, -32020, -32602, -32020, -32022, -32602, -32602, -32601]


async def test_an_unsupported_version_is_told_which_are_supported() -> None:
    async with Rig() as rig:
        meta = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}
        sent = body("tools/list", meta=meta)
        paper = await rig.request(sent, {"mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list"})
    assert paper.json["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


async def test_every_refusal_of_the_ladder_carries_the_id_of_the_request() -> None:
    async with Rig() as rig:
        for method, headers in (("no/such", {}), ("tools/list", {"mcp-method": "x"})):
            assert (await rig.modern(method, id="seven", headers=headers)).json["id"] == "seven"


async def test_an_endpoint_that_is_not_there_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern("tools/list", path="/mcp/nowhere")
    assert (paper.status, paper.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("level", ["loud", 7, ["info"], ""])
async def test_a_log_level_that_is_none_is_refused(level: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern("tools/list", meta={f"{META}logLevel": level})
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("arguments", "header", "code"),
    [
        ({"region": "eu"}, "eu", None),
        ({"region": "eu"}, None, -32020),
        ({"region": "eu"}, "us", -32020),
        ({"region": "é"}, "=?base64?w6k=?=", None),
        ({}, "eu", -32020),
        ({}, None, None),
    ],
)
async def test_an_argument_that_is_mirrored_must_equal_its_header(
    arguments: Json, header: str | None, code: int | None
) -> None:
    async with Rig(FakeBackend(tools=(MIRRORED,))) as rig:
        params = {"name": "lab_echo", "arguments": arguments}
        paper = await rig.modern("tools/call", params, headers={"mcp-param-region": header})
    assert paper.json.get("error", {}).get("code") == code
    assert paper.status == (200 if code is None else 400)


# ---- answers ----------------------------------------------------------------------------------------------------


async def test_a_notification_is_acknowledged_and_reaches_nobody() -> None:
    async with Rig(FakeBackend()) as rig:
        sent = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).encode()
        paper = await rig.request(sent, {"mcp-protocol-version": MODERN})
        refused = await rig.request(sent, {"mcp-protocol-version": "2099-01-01"})
    assert (paper.status, paper.body) == (202, b"")
    assert (refused.status, refused.json["error"]["code"]) == (400, -32022)
    assert not rig.told


async def test_a_result_is_whole_and_stamped() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern(
            "tools/call", {"name": "lab_echo", "arguments": {"a": 1}}, meta={"correlationId": "c-1"}
        )
    result = paper.json["result"]
    assert (paper.status, result["resultType"], result["structuredContent"]) == (200, "complete", {"got": {"a": 1}})
    assert result["_meta"] == {f"{META}serverInfo": {"name": "gatehouse", "version": "0"}, "correlation_id": "c-1"}
    assert paper.headers["x-correlation-id"] == "c-1"


async def test_nothing_that_a_backend_says_is_dropped() -> None:
    said = {"content": [{"type": "hologram", "x": 1}], "custom": {"k": None}, "_meta": {"own": [1]}, "isError": False}

    async def answer(call: Call) -> Json:
        return dict(said)

    async with Rig(FakeBackend(answer=answer)) as rig:
        result = (await rig.modern("tools/call", {"name": "lab_echo"})).json["result"]
    kept = ("content", "custom", "isError")
    assert {key: result[key] for key in kept} == {key: said[key] for key in kept}
    assert result["_meta"]["own"] == [1]


async def test_a_resource_without_cache_hints_gets_the_careful_ones() -> None:
    async def answer(call: Call) -> Json:
        hints = {"ttlMs": 9, "cacheScope": "public"} if call.params["uri"].endswith("b") else {}
        return {"contents": [], **hints}

    backend = FakeBackend(answer=answer, resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}))
    async with Rig(backend) as rig:
        shown = [each["uri"] for each in (await rig.modern("resources/list")).json["result"]["resources"]]
        first, second = [(await rig.modern("resources/read", {"uri": uri})).json["result"] for uri in shown]
    assert (first["ttlMs"], first["cacheScope"]) == (0, "private")
    assert (second["ttlMs"], second["cacheScope"]) == (9, "public")


async def test_discovery_says_what_the_callers_backends_offer() -> None:
    backend = FakeBackend(instructions="Be kind.")
    async with Rig(backend, ttl=5.0) as rig:
        result = (await rig.modern("server/discover")).json["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert result["instructions"] == "## lab\nBe kind."
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (5000, "private", "complete")
    assert "serverInfo" not in result
    assert result["_meta"][f"{META}serverInfo"]["name"] == "gatehouse"


async def test_the_four_lists_are_cacheable_and_private() -> None:
    async with Rig(FakeBackend()) as rig:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = (await rig.modern(method)).json["result"]
            assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == ("complete", "private", 60000)


async def test_progress_and_logs_turn_the_answer_into_a_stream() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/progress", {"progressToken": call.meta["progressToken"], "progress": 1})
        for level in ("debug", "warning"):
            await call.wire.notify("notifications/message", {"level": level, "data": level})
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        meta = {"progressToken": "p", f"{META}logLevel": "info"}
        paper = await rig.modern("tools/call", {"name": "lab_echo"}, meta=meta)
    assert (paper.headers["content-type"], paper.headers["x-accel-buffering"]) == ("text/event-stream", "no")
    progress, message, answered = paper.messages
    assert progress == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "p", "progress": 1},
    }
    assert (message["method"], message["params"]["level"]) == ("notifications/message", "warning")
    assert (answered["id"], answered["result"]["resultType"]) == (1, "complete")
    assert paper.closed
    assert [each.id for each in paper.events] == ["", "", ""]  # nothing to resume in this era


async def test_without_a_log_level_no_log_message_is_sent() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/message", {"level": "emergency", "data": "x"})
        return await echo(call)

    async with Rig(FakeBackend(answer=answer)) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo"})
    assert not paper.opened
    assert paper.json["result"]["resultType"] == "complete"


async def test_a_failure_after_the_first_notification_comes_on_the_stream() -> None:
    async def answer(call: Call) -> Json:
        await call.wire.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        raise ValueError("secret")

    async with Rig(FakeBackend(answer=answer)) as rig:
        paper = await rig.modern("tools/call", {"name": "lab_echo"}, meta={"progressToken": 1})
    assert paper.messages[-1]["result"]["isError"] is True
    assert "secret" not in str(paper.chunks)
    assert paper.closed


# ---- leaving ----------------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_cancels_the_handler() -> None:
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(call: Call) -> Json:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    async with Rig(FakeBackend(answer=answer)) as rig:
        paper, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await running.wait()
        paper.leave()
        await asyncio.wait_for(task, 5)
        assert cancelled.is_set()
        assert not paper.closed
        assert [row[11] for row in rig.log.rows] == ["cancelled"]
        assert not rig.pulse._living


async def test_a_stopping_server_is_not_taken_for_a_client_that_left() -> None:
    running = asyncio.Event()

    async def answer(call: Call) -> Json:
        running.set()
        await asyncio.Event().wait()
        return {}

    async with Rig(FakeBackend(answer=answer)) as rig:
        _, task = rig.begin_modern("tools/call", {"name": "lab_echo"})
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


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


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
@pytest.mark.parametrize("state", [7, ["v1.A"], {}])
async def test_a_state_that_is_no_text_is_the_clients_mistake(method: str, state: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern(method, {"name": "lab_echo", "requestState": state})
    if method == "tools/call":
        assert (paper.status, paper.json["error"]["code"]) == (400, -32602)
    else:
        assert "result" in paper.json or paper.json["error"]["code"] == -32602


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


# ---- a hundred calls at once ------------------------------------------------------------------------------------


async def test_answers_of_calls_that_run_side_by_side_do_not_mix() -> None:
    gates = [asyncio.Event() for _ in range(20)]

    async def answer(call: Call) -> Json:
        await gates[call.arguments["n"]].wait()
        return await echo(call)

    backend = FakeBackend(answer=answer)
    async with Rig(backend) as rig:
        begun = [rig.begin_modern("tools/call", {"name": "lab_echo", "arguments": {"n": n}}, id=n) for n in range(20)]
        await until(lambda: len(backend.calls) == 20)
        for gate in reversed(gates):
            gate.set()
        await asyncio.gather(*(task for _, task in begun))
    for n, (paper, _) in enumerate(begun):
        assert (paper.json["id"], paper.json["result"]["structuredContent"]) == (n, {"got": {"n": n}})
