"""In-process backends: a plain SDK server behind the one Protocol, its handlers called directly."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Completion, InputRequiredResult, ListToolsResult, SubscriptionsListenResult, Tool
from pydantic import BaseModel

from gateway.contract import MODERN, Client, Json, Manifest, Want
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.home import HERE
from gateway.upstream.local import LocalBackend, as_json, fault_in
from tests.gateway.fakes import ALICE, Paper, Rig, a_call, a_route, until

OLD = "2025-11-25"


class Name(BaseModel):
    name: str


def plain() -> MCPServer[Any]:
    """What a newcomer writes: a server that knows nothing of the gateway."""
    server: MCPServer[Any] = MCPServer("plain", version="3", instructions="Be plain.")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def slow(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    @server.tool()
    async def tell(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("a line")
        return "told"

    @server.tool()
    async def who(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", Name)
        return answer.data.name if answer.action == "accept" else answer.action

    @server.tool()
    async def fail(how: str) -> str:
        if how == "fault":
            raise Fault(Kind.ILLEGAL_STATE, "Not now.", code="BUSY")
        if how == "tool error":
            raise ToolError("You may read this.")
        raise ValueError("/srv/secret")

    @server.tool()
    async def here() -> dict[str, Any]:
        seen = HERE.get()
        return {"subject": seen.caller.subject, "id": seen.correlation_id, "meta": seen.meta}

    @server.resource("note://one")
    def one() -> str:
        return "first"

    @server.resource("note://faulty")
    def faulty() -> str:
        raise Fault(Kind.UNAVAILABLE, "The shelf is away.")

    @server.resource("note://broken")
    def broken() -> str:
        raise ValueError("/srv/secret")

    @server.resource("note://by/{id}")
    def by_id(id: str) -> str:
        return f"note {id}"

    @server.prompt()
    def greet(name: str) -> str:
        if name == "fault":
            raise Fault(Kind.DENIED, "Not you.")
        if name == "broken":
            raise ValueError("/srv/secret")
        return f"Hello {name}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[f"{argument.value}!"])

    return server


@asynccontextmanager
async def opened(
    server: Any = None, manifest: Manifest | None = None, namespace: str = "lab"
) -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(namespace, server or plain(), manifest or Manifest())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def rig(server: Any = None, **manifest: Any) -> AsyncIterator[Rig]:
    async with opened(server, Manifest(**manifest)) as backend, Rig(backend) as running:
        yield running


async def called(running: Rig, tool: str, era: str = "modern", **arguments: Any) -> Paper:
    params = {"name": f"lab_{tool}", "arguments": arguments, "_meta": {"progressToken": 7}}
    if era == "modern":
        meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
        return await running.modern("tools/call", params, meta=meta)
    return await running.legacy(await running.session(), "tools/call", params)


# ---- what it lists


async def test_everything_a_plain_server_has_is_offered() -> None:
    async with opened() as backend:
        offer = await backend.offer(None)
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
        assert [each["name"] for each in (await backend.offer(None)).tools] == [f"t{n}" for n in range(5)]


async def test_a_server_without_a_kind_of_thing_lists_none() -> None:
    async with opened(Server("s")) as backend:
        offer = await backend.offer(None)
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
    async with rig(owns=("note://",)) as running:
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
    async with rig(owns=("note://",)) as running:
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
        HERE.get()


async def test_parameters_that_the_sdk_refuses_are_the_clients_mistake() -> None:
    async with opened() as backend:
        with pytest.raises(ForeignError) as refused:
            await backend.send(a_call(params={"arguments": 7}, route=a_route(backend)))
    assert (refused.value.code, refused.value.message) == (-32602, "Invalid request parameters")


async def test_a_synchronous_tool_past_its_deadline_is_answered_at_its_deadline() -> None:
    async with rig(timeouts={"slow": 0.05}) as running:
        began = time.monotonic()
        paper = await called(running, "slow", seconds=2.5)
        took = time.monotonic() - began
    assert error_of(paper.json["result"])["kind"] == "timeout"
    assert took < 2


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
    async with rig(owns=("note://",)) as running:
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
    async with rig(owns=("note://",)) as running:
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


# ---- its life


async def test_the_lifespan_is_entered_once_and_left_at_the_end() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[dict[str, int]]:
        seen.append("in")
        yield {"answer": 42}
        seen.append("out")

    server: MCPServer[Any] = MCPServer("s", lifespan=lifespan)

    @server.tool()
    async def ask(ctx: Context) -> int:
        return ctx.request_context.lifespan_context["answer"]

    async with opened(server) as backend:
        async with Rig(backend) as running:
            for _ in range(3):
                assert (await called(running, "ask")).json["result"]["structuredContent"] == {"result": 42}
        assert seen == ["in"]
    assert seen == ["in", "out"]


async def test_a_lifespan_with_a_task_group_may_be_ended_from_anywhere() -> None:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group():
            yield

    backend = LocalBackend("lab", Server("s", lifespan=lifespan), Manifest())
    await asyncio.create_task(backend.open())
    await asyncio.create_task(backend.close())


async def test_a_backend_that_is_closed_lets_its_last_call_end_first() -> None:
    go_on, ended = asyncio.Event(), []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        yield
        ended.append("lifespan")

    server: MCPServer[Any] = MCPServer("s", lifespan=lifespan)

    @server.tool()
    async def work() -> str:
        await go_on.wait()
        ended.append("call")
        return "x"

    backend = LocalBackend("lab", server, Manifest())
    await backend.open()
    call = a_call(params={"name": "work", "arguments": {}}, route=a_route(backend, {"name": "work"}))
    running = asyncio.create_task(backend.send(call))
    await until(lambda: backend._active)
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(running, closing)
    assert ended == ["call", "lifespan"]


async def test_a_servers_middleware_is_honoured_and_its_own_sealing_and_spans_are_not() -> None:
    seen: list[str] = []

    async def noting(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        seen.append(ctx.method)
        result = await call_next(ctx)
        return {**as_json(result), "noted": True} if ctx.method == "tools/call" else result

    server: MCPServer[Any] = MCPServer("s", middleware=[noting])

    @server.tool()
    async def ask(ctx: Context) -> InputRequiredResult | str:
        return InputRequiredResult(request_state="mine")

    async with opened(server) as backend, Rig(backend) as running:
        paper = await called(running, "ask")
        assert paper.json["result"]["noted"] is True
        view = running.catalogue.view(ALICE, "/mcp")
        assert view is not None
        call = a_call(params={"name": "lab_ask", "arguments": {}}, route=view.tools["lab_ask"])
        assert (await backend.send(call))["requestState"] == "mine"
    assert "tools/call" in seen


# ---- what changes


async def test_a_change_that_a_tool_announces_is_heard() -> None:
    server: MCPServer[Any] = MCPServer("s")

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(lambda: "x", name="grown")
        await ctx.notify_tools_changed()
        return "ok"

    async with opened(server) as backend, Rig(backend) as running:
        await called(running, "grow")
        view = lambda: running.catalogue.view(ALICE, "/mcp")  # noqa: E731
        await until_slow(lambda: "lab_grown" in view().tools)  # type: ignore[union-attr]


async def until_slow(fact: Any) -> None:
    """As `until`, for what a thread has a part in."""
    async with asyncio.timeout(5):
        while not fact():
            await asyncio.sleep(0.002)


class Listening:
    """A lowlevel server's `subscriptions/listen`, counting who listens now."""

    def __init__(self) -> None:
        self.now = 0
        self.wanted: list[list[str]] = []

    async def __call__(self, ctx: Any, params: Any) -> SubscriptionsListenResult:
        self.now += 1
        self.wanted.append(list(params.notifications.resource_subscriptions or []))
        try:
            await asyncio.Event().wait()
        finally:
            self.now -= 1
        raise AssertionError


def wanting(*uris: str) -> list[Want]:
    return [Want(ALICE, Client(MODERN, {}), frozenset(uris))]


async def test_what_is_watched_is_listened_for_and_nothing_at_the_end() -> None:
    listening = Listening()
    async with opened(Server("s", on_subscriptions_listen=listening)) as backend:
        await until(lambda: listening.now == 1)
        await backend.watch(wanting("x:a"))
        await until(lambda: listening.wanted[-1] == ["x:a"])
        await backend.watch(wanting("x:a"))
        assert listening.now == 1
        assert len(listening.wanted) == 2
    assert listening.now == 0


async def test_two_changes_of_what_is_watched_at_once_leave_one_listener() -> None:
    listening = Listening()
    backend = LocalBackend("lab", Server("s", on_subscriptions_listen=listening), Manifest())
    await backend.open()
    await until(lambda: listening.now == 1)
    await asyncio.gather(backend.watch(wanting("x:a")), backend.watch(wanting("x:a", "x:b")))
    for _ in range(5):
        await asyncio.sleep(0)
    left = listening.now
    await backend.close()
    lost = [task for task in asyncio.all_tasks() if task.get_name() == "listen:lab"]
    for task in lost:
        task.cancel()
    await asyncio.gather(*lost, return_exceptions=True)
    assert (left, lost) == (1, [])
