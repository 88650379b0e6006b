"""A server that counts the runs of each call: `python -m tests.faults.counting_server PORT`."""

import asyncio
import sys
from collections import Counter
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

server: MCPServer[Any] = MCPServer("counting")
runs: Counter[str] = Counter()


async def _run(key: str, seconds: float) -> str:
    runs[key] += 1
    await asyncio.sleep(seconds)
    return f"{key} done"


@server.tool()
async def once(key: str, seconds: float) -> str:
    """Must not run twice."""
    return await _run(key, seconds)


@server.tool()
async def again(key: str, seconds: float) -> str:
    """May run again: the operator declares it."""
    return await _run(key, seconds)


@server.tool()
async def counts() -> dict[str, int]:
    """Return the runs of each key."""
    return dict(runs)


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
