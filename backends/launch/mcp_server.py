"""The MCP server of the launch tools: their definitions, and handlers that import the implementation at first use."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams

from backends.launch.resource_list import list_resources, list_templates
from backends.launch.tools import tools
from gateway.contract import Host, Json
from gateway.contract.deferred import Deferred

if TYPE_CHECKING:
    from backends.launch.tool_dispatcher import ToolDispatcher

_INSTRUCTIONS: Final = (
    "Start a run, then poll its status until it is READY_FOR_PR (open the pull request) or VALIDATING (fix the next"
    " issue, repeatedly). A failed gate is reported in validation_report.ok, not as an error."
)


def launch_server(host: Host) -> Server[Any]:
    def build() -> "ToolDispatcher":
        from backends.launch.tool_dispatcher import ToolDispatcher

        return ToolDispatcher(host)

    dispatcher = Deferred(build, "backends.launch.tool_dispatcher")
    listed = tools()

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        return await (await dispatcher.get()).call(ctx, params.name, params.arguments or {})

    async def read_resource(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        return await (await dispatcher.get()).read_resource(str(params.uri))

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if dispatcher.built is not None:
                await dispatcher.built.close()

    server = Server[Any](
        "launch",
        instructions=_INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
    )
    # Registered separately: these handlers return plain objects, which the constructor's types do not accept.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    return server
