"""Answers the requests of the knowledge server that work on the memory. Imported at the first of them."""

from typing import Any

from mcp.server.context import ServerRequestContext

from backends.knowledge import prompts, resources
from backends.knowledge.call_context import MemoryService, open_call
from backends.knowledge.tool_dispatcher import ToolDispatcher
from gateway.contract import Host, Json

Ctx = ServerRequestContext[Any, Any]


class KnowledgeRequests:
    """One memory of each tenant, for the handlers of one MCP server."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._service = MemoryService(host)
        self._dispatcher = ToolDispatcher(self._service)

    async def call_tool(self, ctx: Ctx, name: str, arguments: Json) -> Json:
        return await self._dispatcher.call(open_call(self._service, ctx), name, arguments)

    async def read_resource(self, ctx: Ctx, uri: str) -> Json:
        context = open_call(self._service, ctx)
        if resources.is_search(uri):
            await self._service.prepare_search(context.caller)
        async with context.open() as unit:
            return await resources.read(unit, uri)

    async def subscribe(self, ctx: Ctx, uri: str) -> Json:
        async with open_call(self._service, ctx).open() as unit:
            await resources.check_subscribable(unit, uri)
        self._service.notifier.subscribe(self._host.current_call().caller.tenant, uri)
        return {}

    def unsubscribe(self, uri: str) -> Json:
        self._service.notifier.unsubscribe(self._host.current_call().caller.tenant, uri)
        return {}

    async def complete(self, ctx: Ctx, argument: str, prefix: str) -> Json:
        async with open_call(self._service, ctx).open() as unit:
            return await prompts.complete(unit, argument, prefix)

    def close(self) -> None:
        if self._service.semantic is not None:
            self._service.semantic.close()
