"""The backend module that Gatehouse serves in the benchmark: one `echo` tool that returns a plain dict."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, Tool

Context = ServerRequestContext[Any]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", description="Echoes its text.", input_schema=SCHEMA)])


async def call_tool(ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
    arguments = params.arguments or {}
    return {"content": [{"type": "text", "text": arguments["text"]}], "isError": False, "resultType": "complete"}


def input_schema(name: str) -> dict[str, Any] | None:
    return SCHEMA if name == "echo" else None


# The SDK accepts a plain dict, but the constructor is only typed for the models.
_call_tool = cast("Callable[[Context, CallToolRequestParams], Awaitable[CallToolResult]]", call_tool)

server: Server[Any] = Server(
    "bench", on_list_tools=list_tools, on_call_tool=_call_tool, get_tool_input_schema=input_schema
)
