"""An SDK server over HTTP with one subscribable resource, in one era or in both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as t
import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from tests.in_process_server import InProcessServer

NOTE = "note://it"
MODERN = "2026-07-28"
Context = ServerRequestContext[Any, Any]


@dataclass
class SubscribableServer:
    """The server's subscriptions."""

    port: int = 0
    subscribed: dict[str, ServerSession] = field(default_factory=dict[str, ServerSession])
    """Handshake-era subscriptions, by session id."""
    listening: int = 0
    """Number of modern-era streams that listen for the resource."""
    manager: StreamableHTTPSessionManager | None = None

    def entry(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp", "allow_private": True}

    def subscribers(self) -> int:
        return len(self.subscribed) + self.listening

    async def drop_sessions(self) -> None:
        """Drop all sessions, as a restarted server does."""
        assert self.manager is not None
        self.subscribed.clear()
        sessions = self.manager._server_instances  # pyright: ignore[reportPrivateUsage]
        for transport in list(sessions.values()):
            await transport.terminate()
        sessions.clear()


def build_server(state: SubscribableServer) -> Server[Any]:
    bus = InMemorySubscriptionBus()
    listen = ListenHandler(bus)

    async def count_listeners(ctx: Context, params: t.SubscriptionsListenRequestParams) -> Any:
        wanted = bool(params.notifications.resource_subscriptions)
        state.listening += wanted
        try:
            return await listen(ctx, params)
        finally:
            state.listening -= wanted

    async def subscribe(ctx: Context, params: t.SubscribeRequestParams) -> t.EmptyResult:
        state.subscribed[_session(ctx)] = ctx.session
        return t.EmptyResult()

    async def unsubscribe(ctx: Context, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        state.subscribed.pop(_session(ctx), None)
        return t.EmptyResult()

    async def touch(ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        if ctx.protocol_version == MODERN:
            await bus.publish(ResourceUpdated(uri=NOTE))
        elif _session(ctx) in state.subscribed:
            # Notify only the calling session, as `server-everything` does: other updates reveal a shared session.
            await ctx.session.send_resource_updated(NOTE)
        return t.CallToolResult(content=[])

    async def tools(ctx: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name="touch", input_schema={"type": "object"})])

    async def resources(ctx: Context, params: t.PaginatedRequestParams | None) -> t.ListResourcesResult:
        return t.ListResourcesResult(resources=[t.Resource(uri=NOTE, name="note")])

    return Server(
        "noting",
        version="1",
        on_list_tools=tools,
        on_call_tool=touch,
        on_list_resources=resources,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=count_listeners,
        get_tool_input_schema=lambda name: None,
    )


def _session(ctx: Context) -> str:
    assert ctx.request is not None
    return ctx.request.headers.get("mcp-session-id", "")


@asynccontextmanager
async def subscribable_server(*eras: str) -> AsyncIterator[SubscribableServer]:
    """Serve at /mcp until the block ends, in the given eras (`modern`, `handshake`)."""
    state = SubscribableServer()
    state.manager = manager = StreamableHTTPSessionManager(build_server(state))
    inner = StreamableHTTPASGIApp(manager)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if ("modern" if version == MODERN else "handshake") in eras:
            await inner(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    async with manager.run(), InProcessServer(config).running() as state.port:
        yield state
