"""A task server of 2025-11-25: `python task_server_v1.py PORT`, with the Python of the SDK 1.x."""

import asyncio
import contextlib
import sys
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool, ToolExecution
from starlette.applications import Starlette
from starlette.routing import Route

server: Any = Server("task-server-v1")
server.experimental.enable_tasks()


def _tool(name: str, support: str) -> Tool:
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}}
    return Tool(name=name, description=name, inputSchema=schema, execution=ToolExecution(taskSupport=support))


@server.list_tools()
async def list_tools() -> list[Tool]:
    plain = Tool(name="plain", description="plain", inputSchema={"type": "object"})
    return [_tool("research", "required"), _tool("endless", "optional"), _tool("confirm", "required"), plain]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    if name == "plain":
        return [TextContent(type="text", text="plain")]
    context = server.request_context

    async def work(task: Any) -> CallToolResult:
        if name == "endless":
            await asyncio.Event().wait()
        if name == "confirm":
            schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
            answer = await task.elicit(message="Are you sure?", requestedSchema=schema)
            return CallToolResult(content=[TextContent(type="text", text=f"sure: {answer.content}")])
        await task.update_status("reading")
        await asyncio.sleep(0.2)
        return CallToolResult(content=[TextContent(type="text", text=f"report on {arguments.get('topic')}")])

    return await context.experimental.run_task(work)


manager = StreamableHTTPSessionManager(app=server)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> Any:
    async with manager.run():
        yield


class Endpoint:
    """An ASGI app: a route without a redirect."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await manager.handle_request(scope, receive, send)


app = Starlette(routes=[Route("/mcp", endpoint=Endpoint())], lifespan=lifespan)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
