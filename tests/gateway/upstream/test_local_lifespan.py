"""`LocalBackend`: lifespan, middleware, changes and subscriptions of a module."""

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
from tests.gateway.upstream.plain_server import call_tool, open_backend

# ---- lifespan and middleware


async def test_lifespan_is_entered_once_and_left_on_close() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[dict[str, int]]:
        events.append("in")
        yield {"answer": 42}
        events.append("out")

    server: MCPServer[Any] = MCPServer("s", lifespan=lifespan)

    @server.tool()
    async def ask(ctx: Context) -> int:
        return ctx.request_context.lifespan_context["answer"]

    async with open_backend(server) as backend:
        async with Rig(backend) as running:
            for _ in range(3):
                assert (await call_tool(running, "ask")).json["result"]["structuredContent"] == {"result": 42}
        assert events == ["in"]
    assert events == ["in", "out"]


async def test_lifespan_with_a_task_group_can_be_closed_from_another_task() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group():
            events.append("in")
            yield
        events.append("out")

    backend = LocalBackend("lab", Server("s", lifespan=lifespan), Manifest())
    await asyncio.create_task(backend.open())
    assert events == ["in"]
    await asyncio.create_task(backend.close())
    assert events == ["in", "out"]


async def test_close_waits_for_calls_in_progress() -> None:
    proceed, order = asyncio.Event(), []

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        yield
        order.append("lifespan")

    server: MCPServer[Any] = MCPServer("s", lifespan=lifespan)

    @server.tool()
    async def work() -> str:
        await proceed.wait()
        order.append("call")
        return "x"

    backend = LocalBackend("lab", server, Manifest())
    await backend.open()
    call = a_call(params={"name": "work", "arguments": {}}, route=a_route(backend, {"name": "work"}))
    running = asyncio.create_task(backend.send(call))
    await until(lambda: backend._active)
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    proceed.set()
    await asyncio.gather(running, closing)
    assert order == ["call", "lifespan"]


async def test_server_middleware_runs_except_the_sdks_sealing_and_spans() -> None:
    events: list[str] = []

    async def note_methods(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        events.append(ctx.method)
        result = await call_next(ctx)
        return {**as_json(result), "noted": True} if ctx.method == "tools/call" else result

    server: MCPServer[Any] = MCPServer("s", middleware=[note_methods])

    @server.tool()
    async def ask(ctx: Context) -> InputRequiredResult | str:
        return InputRequiredResult(request_state="mine")

    async with open_backend(server) as backend, Rig(backend) as running:
        response = await call_tool(running, "ask")
        assert response.json["result"]["noted"] is True
        view = running.catalogue.view(ALICE, "/mcp")
        assert view is not None
        call = a_call(params={"name": "lab_ask", "arguments": {}}, route=view.tools["lab_ask"])
        assert (await backend.send(call))["requestState"] == "mine"
    assert "tools/call" in events


# ---- changes and subscriptions


async def test_change_that_a_tool_announces_updates_the_catalogue() -> None:
    server: MCPServer[Any] = MCPServer("s")

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(lambda: "x", name="grown")
        await ctx.notify_tools_changed()
        return "ok"

    async with open_backend(server) as backend, Rig(backend) as running:
        await call_tool(running, "grow")
        view = lambda: running.catalogue.view(ALICE, "/mcp")  # noqa: E731
        await eventually(lambda: "lab_grown" in view().tools)  # type: ignore[union-attr]


async def eventually(condition: Any) -> None:
    """As `until`, for conditions that depend on a thread."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


class FakeListen:
    """The `subscriptions/listen` handler of a lowlevel server; counts the active listeners."""

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


def interests(*uris: str) -> list[ResourceInterest]:
    return [ResourceInterest(ALICE, ClientProfile(MODERN, {}), frozenset(uris))]


async def test_subscribed_resources_are_listened_for_until_close() -> None:
    listening = FakeListen()
    async with open_backend(Server("s", on_subscriptions_listen=listening)) as backend:
        await until(lambda: listening.now == 1)
        await backend.set_subscriptions(interests("x:a"))
        await until(lambda: listening.wanted[-1] == ["x:a"])
        await backend.set_subscriptions(interests("x:a"))
        assert listening.now == 1
        assert len(listening.wanted) == 2
    assert listening.now == 0


async def test_two_concurrent_subscription_changes_leave_one_listener() -> None:
    listening = FakeListen()
    backend = LocalBackend("lab", Server("s", on_subscriptions_listen=listening), Manifest())
    await backend.open()
    await until(lambda: listening.now == 1)
    await asyncio.gather(
        backend.set_subscriptions(interests("x:a")), backend.set_subscriptions(interests("x:a", "x:b"))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    active = listening.now
    await backend.close()
    leftover = [task for task in asyncio.all_tasks() if task.get_name() == "listen:lab"]
    for task in leftover:
        task.cancel()
    await asyncio.gather(*leftover, return_exceptions=True)
    assert (active, leftover) == (1, [])


async def subscribed(manifest: Manifest, *updates: list[ResourceInterest]) -> list[list[tuple[str, str, str]]]:
    """Apply the updates. Returns the server's requests after each: method, URI and tenant."""
    requests: list[tuple[str, str, str]] = []

    async def handler(ctx: ServerRequestContext[Any], params: Any) -> dict[str, Any]:
        current = CURRENT_CALL.get(None)
        requests.append((ctx.method.rpartition("/")[2], str(params.uri), current.caller.tenant if current else "-"))
        return {}

    server = Server[Any]("s")
    for method, type_ in (
        ("resources/subscribe", SubscribeRequestParams),
        ("resources/unsubscribe", UnsubscribeRequestParams),
    ):
        server.add_request_handler(method, type_, handler)
    rounds_seen: list[list[tuple[str, str, str]]] = []
    backend = LocalBackend("lab", server, manifest)
    await backend.open()
    for interests_update in updates:
        await backend.set_subscriptions(interests_update)
        rounds_seen.append(sorted(requests))
        requests.clear()
    await backend.close()
    return rounds_seen


async def test_server_gets_one_subscription_per_uri() -> None:
    both = [*interests("x:a"), ResourceInterest(Caller("beta", "carol"), ClientProfile(MODERN, {}), frozenset({"x:a"}))]
    assert await subscribed(Manifest(), both, both[1:], []) == [
        [("subscribe", "x:a", "-")],
        [],
        [("unsubscribe", "x:a", "-")],
    ]


async def test_module_that_subscribes_by_tenant_gets_one_subscription_per_tenant() -> None:
    both = [*interests("x:a"), ResourceInterest(Caller("beta", "carol"), ClientProfile(MODERN, {}), frozenset({"x:a"}))]
    assert await subscribed(Manifest(subscribe_by_tenant=True), both, both[1:], []) == [
        [("subscribe", "x:a", "acme"), ("subscribe", "x:a", "beta")],
        [("unsubscribe", "x:a", "acme")],
        [("unsubscribe", "x:a", "beta")],
    ]
