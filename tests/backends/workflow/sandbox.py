"""A backend for workflows to work on: it counts, fails on demand, and waits until it is let go."""

import asyncio
from typing import Any

from mcp.server.mcpserver import MCPServer

from gateway.errors import Fault, Kind

server = MCPServer("sandbox")
calls: list[dict[str, Any]] = []
gates: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


@server.tool()
async def echo(value: Any) -> dict[str, Any]:
    calls.append({"tool": "echo", "value": value})
    return {"value": value, "deep": {"er": value}}


@server.tool()
async def flaky(name: str, fails: int, kind: str = "internal") -> dict[str, Any]:
    """Fails that many times, then succeeds."""
    calls.append({"tool": "flaky", "name": name})
    tries = sum(call.get("name") == name for call in calls)
    if tries <= fails:
        raise Fault(Kind(kind), f"attempt {tries} failed")
    return {"tries": tries}


@server.tool()
async def wait(name: str) -> dict[str, Any]:
    """Until the test opens the gate of that name."""
    calls.append({"tool": "wait", "name": name})
    gate(f"{name}:begun").set()
    await gate(name).wait()
    return {"waited": name}
