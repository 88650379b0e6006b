"""A module in this process: its lifespan, its middleware, and what it says has changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import InputRequiredResult, SubscribeRequestParams, SubscriptionsListenResult, UnsubscribeRequestParams

from gateway.contract import MODERN, Caller, ClientProfile, Manifest, ResourceInterest
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local import LocalBackend, as_json
from tests.gateway.fakes import ALICE, Rig, a_call, a_route, until
from tests.gateway.upstream.plain import called, opened

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
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group():
            seen.append("in")
            yield
        seen.append("out")

    backend = LocalBackend("lab", Server("s", lifespan=lifespan), Manifest())
    await asyncio.create_task(backend.open())
    assert seen == ["in"]
    await asyncio.create_task(backend.close())
    assert seen == ["in", "out"]


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


def wanting(*uris: str) -> list[ResourceInterest]:
    return [ResourceInterest(ALICE, ClientProfile(MODERN, {}), frozenset(uris))]


async def test_what_is_watched_is_listened_for_and_nothing_at_the_end() -> None:
    listening = Listening()
    async with opened(Server("s", on_subscriptions_listen=listening)) as backend:
        await until(lambda: listening.now == 1)
        await backend.set_subscriptions(wanting("x:a"))
        await until(lambda: listening.wanted[-1] == ["x:a"])
        await backend.set_subscriptions(wanting("x:a"))
        assert listening.now == 1
        assert len(listening.wanted) == 2
    assert listening.now == 0


async def test_two_changes_of_what_is_watched_at_once_leave_one_listener() -> None:
    listening = Listening()
    backend = LocalBackend("lab", Server("s", on_subscriptions_listen=listening), Manifest())
    await backend.open()
    await until(lambda: listening.now == 1)
    await asyncio.gather(backend.set_subscriptions(wanting("x:a")), backend.set_subscriptions(wanting("x:a", "x:b")))
    for _ in range(5):
        await asyncio.sleep(0)
    left = listening.now
    await backend.close()
    lost = [task for task in asyncio.all_tasks() if task.get_name() == "listen:lab"]
    for task in lost:
        task.cancel()
    await asyncio.gather(*lost, return_exceptions=True)
    assert (left, lost) == (1, [])


async def subscribed(manifest: Manifest, *rounds: list[ResourceInterest]) -> list[list[tuple[str, str, str]]]:
    """What the server was told in each round: method, URI, and whose it is."""
    told: list[tuple[str, str, str]] = []

    async def handler(ctx: ServerRequestContext[Any], params: Any) -> dict[str, Any]:
        here = CURRENT_CALL.get(None)
        told.append((ctx.method.rpartition("/")[2], str(params.uri), here.caller.tenant if here else "-"))
        return {}

    server = Server[Any]("s")
    for method, type_ in (
        ("resources/subscribe", SubscribeRequestParams),
        ("resources/unsubscribe", UnsubscribeRequestParams),
    ):
        server.add_request_handler(method, type_, handler)
    heard: list[list[tuple[str, str, str]]] = []
    backend = LocalBackend("lab", server, manifest)
    await backend.open()
    for wants in rounds:
        await backend.set_subscriptions(wants)
        heard.append(sorted(told))
        told.clear()
    await backend.close()
    return heard


async def test_a_server_is_told_once_what_anybody_wants() -> None:
    both = [*wanting("x:a"), ResourceInterest(Caller("beta", "carol"), ClientProfile(MODERN, {}), frozenset({"x:a"}))]
    assert await subscribed(Manifest(), both, both[1:], []) == [
        [("subscribe", "x:a", "-")],
        [],
        [("unsubscribe", "x:a", "-")],
    ]


async def test_a_module_that_tells_tenants_apart_is_told_of_each() -> None:
    both = [*wanting("x:a"), ResourceInterest(Caller("beta", "carol"), ClientProfile(MODERN, {}), frozenset({"x:a"}))]
    assert await subscribed(Manifest(subscribe_by_tenant=True), both, both[1:], []) == [
        [("subscribe", "x:a", "acme"), ("subscribe", "x:a", "beta")],
        [("unsubscribe", "x:a", "acme")],
        [("unsubscribe", "x:a", "beta")],
    ]
