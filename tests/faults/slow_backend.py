"""A backend whose work takes as long as it is told, and no processor time."""

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("busy")


@server.tool()
async def work(seconds: float) -> str:
    """Take so long."""
    await asyncio.sleep(seconds)
    return "done"
