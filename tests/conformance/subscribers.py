"""Everybody who should hear of a change: listen streams of the modern era, sessions of the handshake era."""

from contextlib import suppress
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_SESSION: Final = "mcp-session-id"


class Audience:
    def __init__(self) -> None:
        self.bus: Final = InMemorySubscriptionBus()
        self._sessions: dict[str, ServerSession] = {}

    async def note(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """A middleware: remembers each session that asks anything."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            headers = ctx.request.headers if ctx.request is not None else {}
            self._sessions[headers.get(_SESSION, "")] = ctx.session
        return await call_next(ctx)

    async def tools_changed(self) -> None:
        await self.bus.publish(ToolsListChanged())
        for session in list(self._sessions.values()):
            with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await session.send_tool_list_changed()

    async def prompts_changed(self) -> None:
        await self.bus.publish(PromptsListChanged())
        for session in list(self._sessions.values()):
            with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await session.send_prompt_list_changed()
