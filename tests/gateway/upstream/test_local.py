"""`LocalBackend` with a plain SDK server: lists, calls and errors."""

import time
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import ListToolsResult, Tool

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local import as_json, find_fault
from tests.gateway.fakes import ALICE, a_call, a_route, until
from tests.gateway.upstream.plain_server import HANDSHAKE, Name, call_tool, open_backend, running_rig

# ---- lists


async def test_all_features_of_a_plain_server_are_listed() -> None:
    async with open_backend() as backend:
        lists = await backend.fetch_lists(None)
    assert [each["name"] for each in lists.tools] == ["add", "slow", "report", "ask_name", "fail", "current_call"]
    assert lists.tools[0]["inputSchema"]["required"] == ["a", "b"]
    assert {each["uri"] for each in lists.resources} == {"note://one", "note://faulty", "note://broken"}
    assert [each["uriTemplate"] for each in lists.templates] == ["note://by/{id}"]
    assert [each["name"] for each in lists.prompts] == ["greet"]
    assert (lists.instructions, lists.info["name"], lists.info["version"]) == ("Be plain.", "plain", "3")
    assert {"tools", "resources", "prompts", "completions"} <= lists.capabilities.keys()


async def test_all_pages_of_a_list_are_read() -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        page = int(params.cursor or 0)
        item = Tool(name=f"t{page}", input_schema={"type": "object"})
        return ListToolsResult(tools=[item], next_cursor=str(page + 1) if page < 4 else None)

    async with open_backend(Server("s", on_list_tools=list_tools)) as backend:
        assert [each["name"] for each in (await backend.fetch_lists(None)).tools] == [f"t{n}" for n in range(5)]


async def test_server_without_a_feature_lists_nothing_for_it() -> None:
    async with open_backend(Server("s")) as backend:
        lists = await backend.fetch_lists(None)
        assert (lists.tools, lists.resources, lists.templates, lists.prompts) == ((), (), (), ())
        with pytest.raises(ForeignError) as rejected:
            await backend.send(a_call())
    assert rejected.value.code == -32601


# ---- calls


@pytest.mark.parametrize("era", ["modern", HANDSHAKE])
async def test_tool_returns_its_result_in_either_era(era: str) -> None:
    async with running_rig() as running:
        result = (await call_tool(running, "add", era, a=2, b=3)).final_message["result"]
    assert (result["structuredContent"], result["content"][0]["text"]) == ({"result": 5}, "5")


@pytest.mark.parametrize("era", ["modern", HANDSHAKE])
async def test_progress_and_log_messages_of_a_handler_reach_its_client(era: str) -> None:
    async with running_rig() as running:
        response = await call_tool(running, "report", era)
    (progress,) = response.sent("notifications/progress")
    (message,) = response.sent("notifications/message")
    assert progress["params"] == {"progressToken": 7, "progress": 1, "total": 2, "message": "half"}
    assert (message["params"]["level"], message["params"]["data"]) == ("info", "a line")
    assert response.final_message["result"]["content"][0]["text"] == "reported"


async def test_handler_can_elicit_input_from_a_handshake_client() -> None:
    async with running_rig() as running:
        session = await running.session(capabilities={"elicitation": {}})
        response, task = running.begin_legacy(session, "tools/call", {"name": "lab_ask_name"})
        (question,) = await until(lambda: response.sent("elicitation/create"))
        assert question["params"]["requestedSchema"]["required"] == ["name"]
        await running.answer(
            session, {"id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        )
        await task
    assert response.final_message["result"]["content"][0]["text"] == "Ann"


async def test_resources_templates_prompts_and_completions_return_results() -> None:
    async with running_rig(uri_prefixes=("note://",)) as running:
        first = (await running.modern("resources/read", {"uri": "note://one"})).json["result"]
        second = (await running.modern("resources/read", {"uri": "note://by/7"})).json["result"]
        prompt = (await running.modern("prompts/get", {"name": "lab_greet", "arguments": {"name": "Ann"}})).json[
            "result"
        ]
        ref = {"ref": {"type": "ref/prompt", "name": "lab_greet"}, "argument": {"name": "name", "value": "A"}}
        completed = (await running.modern("completion/complete", ref)).json["result"]
    assert (first["contents"][0]["text"], second["contents"][0]["text"]) == ("first", "note 7")
    assert prompt["messages"][0]["content"]["text"] == "Hello Ann"
    assert completed["completion"]["values"] == ["A!"]


async def test_unknown_resource_has_the_error_code_of_each_era() -> None:
    async with running_rig(uri_prefixes=("note://",)) as running:
        new = await running.modern("resources/read", {"uri": "note://none"})
        old = await running.legacy(await running.session(), "resources/read", {"uri": "note://none"})
    assert (new.status, new.json["error"]["code"], new.json["error"]["data"]["uri"]) == (400, -32602, "note://none")
    assert old.json["error"]["code"] == -32002


async def test_current_call_is_set_in_the_handler_only() -> None:
    async with running_rig() as running:
        result = (await call_tool(running, "current_call")).json["result"]["structuredContent"]
    assert result["subject"] == ALICE.subject
    assert result["meta"]["progressToken"] == 7
    with pytest.raises(LookupError):
        CURRENT_CALL.get()


async def test_params_that_the_sdk_rejects_are_invalid_params() -> None:
    async with open_backend() as backend:
        with pytest.raises(ForeignError) as rejected:
            await backend.send(a_call(params={"arguments": 7}, route=a_route(backend)))
    assert (rejected.value.code, rejected.value.message) == (-32602, "Invalid request parameters")


async def test_synchronous_tool_times_out_at_its_deadline() -> None:
    async with running_rig(timeouts={"slow": 0.05}) as running:
        started_at = time.monotonic()
        response = await call_tool(running, "slow", seconds=1.0)
        duration = time.monotonic() - started_at
    assert error_of(response.json["result"])["kind"] == "timeout"
    assert duration < 0.9


# ---- errors


def error_of(result: Json) -> Json:
    structured = result.get("structuredContent") or {}
    return structured.get("error") or result["_meta"]["gatehouse/error"]


@pytest.mark.parametrize("era", ["modern", HANDSHAKE])
async def test_fault_among_the_causes_keeps_its_kind(era: str) -> None:
    async with running_rig() as running:
        result = (await call_tool(running, "fail", era, how="fault")).json["result"]
    error = error_of(result)
    assert (result["isError"], error["kind"], error["code"], error["origin"]) == (True, "illegal_state", "BUSY", "lab")


async def test_fault_of_a_prompt_keeps_its_kind() -> None:
    async with running_rig() as running:
        error = (await running.modern("prompts/get", {"name": "lab_greet", "arguments": {"name": "fault"}})).json[
            "error"
        ]
    assert (error["code"], error["data"]["kind"], error["message"]) == (403, "denied", "Not you.")


async def test_fault_of_a_resource_keeps_its_kind() -> None:
    async with running_rig(uri_prefixes=("note://",)) as running:
        error = (await running.modern("resources/read", {"uri": "note://faulty"})).json["error"]
    assert (error["code"], error["data"].get("kind")) == (503, "unavailable")


async def test_text_of_a_tool_error_reaches_the_client() -> None:
    async with running_rig() as running:
        result = (await call_tool(running, "fail", how="tool error")).json["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"].endswith("You may read this.")


@pytest.mark.parametrize("era", ["modern", HANDSHAKE])
async def test_text_of_an_unknown_exception_is_logged_and_not_sent_to_the_client(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_rig(uri_prefixes=("note://",)) as running:
        responses = [await call_tool(running, "fail", era, how="else")]
        session = await running.session()
        for method, params in (
            ("prompts/get", {"name": "lab_greet", "arguments": {"name": "broken"}}),
            ("resources/read", {"uri": "note://broken"}),
        ):
            new = era == "modern"
            responses.append(await (running.modern(method, params) if new else running.legacy(session, method, params)))
    for response in responses:
        assert "secret" not in str(response.final_message)
    assert "/srv/secret" in caplog.text


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_find_fault_searches_the_causes(depth: int) -> None:
    fault = Fault(Kind.DENIED, "x")
    exc: BaseException = fault
    for _ in range(depth):
        outer = ValueError()
        outer.__cause__ = exc
        exc = outer
    assert find_fault(exc) is fault
    assert find_fault(ValueError()) is None


def test_find_fault_ends_for_a_cycle_of_causes() -> None:
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    assert find_fault(one) is None


def test_as_json_rejects_values_that_are_not_results() -> None:
    assert as_json({"a": None}) == {"a": None}
    assert as_json(None) == {}
    assert as_json(Name(name="x")) == {"name": "x"}
    with pytest.raises(TypeError):
        as_json(7)
