"""In-process backends: a plain SDK server behind the one Protocol, its handlers called directly."""

import time
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import ListToolsResult, Tool

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local import as_json, fault_in
from tests.gateway.fakes import ALICE, a_call, a_route, until
from tests.gateway.upstream.plain import OLD, Name, called, opened, rig

# ---- what it lists


async def test_everything_a_plain_server_has_is_offered() -> None:
    async with opened() as backend:
        offer = await backend.fetch_lists(None)
    assert [each["name"] for each in offer.tools] == ["add", "slow", "tell", "who", "fail", "here"]
    assert offer.tools[0]["inputSchema"]["required"] == ["a", "b"]
    assert {each["uri"] for each in offer.resources} == {"note://one", "note://faulty", "note://broken"}
    assert [each["uriTemplate"] for each in offer.templates] == ["note://by/{id}"]
    assert [each["name"] for each in offer.prompts] == ["greet"]
    assert (offer.instructions, offer.info["name"], offer.info["version"]) == ("Be plain.", "plain", "3")
    assert {"tools", "resources", "prompts", "completions"} <= offer.capabilities.keys()


async def test_a_list_of_many_pages_is_read_to_its_end() -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        page = int(params.cursor or 0)
        item = Tool(name=f"t{page}", input_schema={"type": "object"})
        return ListToolsResult(tools=[item], next_cursor=str(page + 1) if page < 4 else None)

    async with opened(Server("s", on_list_tools=list_tools)) as backend:
        assert [each["name"] for each in (await backend.fetch_lists(None)).tools] == [f"t{n}" for n in range(5)]


async def test_a_server_without_a_kind_of_thing_lists_none() -> None:
    async with opened(Server("s")) as backend:
        offer = await backend.fetch_lists(None)
        assert (offer.tools, offer.resources, offer.templates, offer.prompts) == ((), (), (), ())
        with pytest.raises(ForeignError) as refused:
            await backend.send(a_call())
    assert refused.value.code == -32601


# ---- calls


@pytest.mark.parametrize("era", ["modern", OLD])
async def test_a_tool_answers_in_either_era(era: str) -> None:
    async with rig() as running:
        result = (await called(running, "add", era, a=2, b=3)).last["result"]
    assert (result["structuredContent"], result["content"][0]["text"]) == ({"result": 5}, "5")


@pytest.mark.parametrize("era", ["modern", OLD])
async def test_progress_and_logs_of_a_handler_reach_its_own_client(era: str) -> None:
    async with rig() as running:
        paper = await called(running, "tell", era)
    (progress,) = paper.sent("notifications/progress")
    (message,) = paper.sent("notifications/message")
    assert progress["params"] == {"progressToken": 7, "progress": 1, "total": 2, "message": "half"}
    assert (message["params"]["level"], message["params"]["data"]) == ("info", "a line")
    assert paper.last["result"]["content"][0]["text"] == "told"


async def test_a_handler_may_ask_a_client_of_the_handshake_era() -> None:
    async with rig() as running:
        session = await running.session(capabilities={"elicitation": {}})
        paper, task = running.begin_legacy(session, "tools/call", {"name": "lab_who"})
        (question,) = await until(lambda: paper.sent("elicitation/create"))
        assert question["params"]["requestedSchema"]["required"] == ["name"]
        await running.answer(
            session, {"id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        )
        await task
    assert paper.last["result"]["content"][0]["text"] == "Ann"


async def test_a_resource_a_template_a_prompt_and_a_completion_answer() -> None:
    async with rig(uri_prefixes=("note://",)) as running:
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


async def test_an_unknown_resource_has_each_eras_own_number() -> None:
    async with rig(uri_prefixes=("note://",)) as running:
        new = await running.modern("resources/read", {"uri": "note://none"})
        old = await running.legacy(await running.session(), "resources/read", {"uri": "note://none"})
    assert (new.status, new.json["error"]["code"], new.json["error"]["data"]["uri"]) == (400, -32602, "note://none")
    assert old.json["error"]["code"] == -32002


async def test_a_handler_knows_who_calls_and_nobody_elses_call() -> None:
    async with rig() as running:
        result = (await called(running, "here")).json["result"]["structuredContent"]
    assert result["subject"] == ALICE.subject
    assert result["meta"]["progressToken"] == 7
    with pytest.raises(LookupError):
        CURRENT_CALL.get()


async def test_parameters_that_the_sdk_refuses_are_the_clients_mistake() -> None:
    async with opened() as backend:
        with pytest.raises(ForeignError) as refused:
            await backend.send(a_call(params={"arguments": 7}, route=a_route(backend)))
    assert (refused.value.code, refused.value.message) == (-32602, "Invalid request parameters")


async def test_a_synchronous_tool_past_its_deadline_is_answered_at_its_deadline() -> None:
    async with rig(timeouts={"slow": 0.05}) as running:
        began = time.monotonic()
        paper = await called(running, "slow", seconds=1.0)
        took = time.monotonic() - began
    assert error_of(paper.json["result"])["kind"] == "timeout"
    assert took < 0.9


# ---- what fails


def error_of(result: Json) -> Json:
    structured = result.get("structuredContent") or {}
    return structured.get("error") or result["_meta"]["gatehouse/error"]


@pytest.mark.parametrize("era", ["modern", OLD])
async def test_a_fault_among_the_causes_keeps_its_kind(era: str) -> None:
    async with rig() as running:
        result = (await called(running, "fail", era, how="fault")).json["result"]
    error = error_of(result)
    assert (result["isError"], error["kind"], error["code"], error["origin"]) == (True, "illegal_state", "BUSY", "lab")


async def test_a_prompts_fault_keeps_its_kind() -> None:
    async with rig() as running:
        error = (await running.modern("prompts/get", {"name": "lab_greet", "arguments": {"name": "fault"}})).json[
            "error"
        ]
    assert (error["code"], error["data"]["kind"], error["message"]) == (403, "denied", "Not you.")


async def test_a_resources_fault_keeps_its_kind() -> None:
    async with rig(uri_prefixes=("note://",)) as running:
        error = (await running.modern("resources/read", {"uri": "note://faulty"})).json["error"]
    assert (error["code"], error["data"].get("kind")) == (503, "unavailable")


async def test_the_words_of_a_tool_error_are_meant_for_the_client() -> None:
    async with rig() as running:
        result = (await called(running, "fail", how="tool error")).json["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"].endswith("You may read this.")


@pytest.mark.parametrize("era", ["modern", OLD])
async def test_the_text_of_an_unknown_exception_never_leaves_the_house(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(uri_prefixes=("note://",)) as running:
        papers = [await called(running, "fail", era, how="else")]
        session = await running.session()
        for method, params in (
            ("prompts/get", {"name": "lab_greet", "arguments": {"name": "broken"}}),
            ("resources/read", {"uri": "note://broken"}),
        ):
            new = era == "modern"
            papers.append(await (running.modern(method, params) if new else running.legacy(session, method, params)))
    for paper in papers:
        assert "secret" not in str(paper.last)
    assert "/srv/secret" in caplog.text


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_fault_is_found_among_causes(depth: int) -> None:
    fault = Fault(Kind.DENIED, "x")
    exc: BaseException = fault
    for _ in range(depth):
        outer = ValueError()
        outer.__cause__ = exc
        exc = outer
    assert fault_in(exc) is fault
    assert fault_in(ValueError()) is None


def test_a_chain_of_causes_that_bites_its_tail_ends() -> None:
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    assert fault_in(one) is None


def test_only_results_are_results() -> None:
    assert as_json({"a": None}) == {"a": None}
    assert as_json(None) == {}
    assert as_json(Name(name="x")) == {"name": "x"}
    with pytest.raises(TypeError):
        as_json(7)
