"""The SDK's own server of the transport of 2024-11-05: in this process, or as a program that can be killed."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from tests.quiet import QuietServer


class Name(BaseModel):
    name: str


def made() -> "MCPServer[Any]":
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
    """The port of a server at /sse, until the block ends."""
    app = made().sse_app()
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    async with QuietServer(config).running() as port:
        yield port


if __name__ == "__main__":
    uvicorn.run(made().sse_app(), port=int(sys.argv[1]), log_level="critical")
