"""Notifies all subscribers of list changes: listen streams of the modern era, sessions of the handshake era."""

from contextlib import suppress
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_SESSION: Final = "mcp-session-id"


class Subscribers:
    """The listen streams and sessions that receive change notifications."""

    def __init__(self) -> None:
        self.bus: Final = InMemorySubscriptionBus()
        self._sessions: dict[str, ServerSession] = {}

    async def remember_session(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that remembers every session that sends a request."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            headers = ctx.request.headers if ctx.request is not None else {}
            self._sessions[headers.get(_SESSION, "")] = ctx.session
        return await call_next(ctx)

    async def notify_tools_changed(self) -> None:
        await self.bus.publish(ToolsListChanged())
        for session in list(self._sessions.values()):
            with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await session.send_tool_list_changed()

    async def notify_prompts_changed(self) -> None:
        await self.bus.publish(PromptsListChanged())
        for session in list(self._sessions.values()):
            with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                await session.send_prompt_list_changed()
