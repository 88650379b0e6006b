"""Backend module for the hostile-tenant scenario: its tool waits, without CPU time."""

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("busy")


@server.tool()
async def work(seconds: float) -> str:
    """Wait for that many seconds."""
    await asyncio.sleep(seconds)
    return "done"
