"""The SDK's server of the HTTP+SSE transport (2024-11-05), in this process or as a separate program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from tests.in_process_server import InProcessServer


class Name(BaseModel):
    name: str


def build_server() -> "MCPServer[Any]":
    server = MCPServer("older")
    hold = asyncio.Event()

    @server.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else "nobody"

    @server.tool()
    async def work(ctx: Context, steps: int = 3) -> str:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps)
        return f"{steps} steps in session {id(ctx.session._connection)}"

    @server.tool()
    async def wait() -> str:
        await hold.wait()
        return "released"

    return server


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Serve at /sse until the block ends and yield the port."""
    app = build_server().sse_app()
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    async with InProcessServer(config).running() as port:
        yield port


if __name__ == "__main__":
    uvicorn.run(build_server().sse_app(), port=int(sys.argv[1]), log_level="critical")
