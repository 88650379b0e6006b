"""A backend for workflow tests: records its calls, fails on demand, and waits until a test releases it."""

import asyncio
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

from gateway.errors import Fault, Kind

server = MCPServer("sandbox")
calls: list[dict[str, Any]] = []
gates: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


def reset() -> None:
    calls.clear()
    gates.clear()


@server.tool()
async def echo(value: Any) -> dict[str, Any]:
    calls.append({"tool": "echo", "value": value})
    return {"value": value, "deep": {"er": value}}


@server.tool()
async def flaky(name: str, fails: int, kind: str = "internal") -> dict[str, Any]:
    """Fail that many times, then succeed."""
    calls.append({"tool": "flaky", "name": name})
    tries = sum(call.get("name") == name for call in calls)
    if tries <= fails:
        raise Fault(Kind(kind), f"attempt {tries} failed")
    return {"tries": tries}


@server.tool()
async def wait(name: str) -> dict[str, Any]:
    """Wait until the test opens the gate of that name."""
    calls.append({"tool": "wait", "name": name})
    gate(f"{name}:begun").set()
    await gate(name).wait()
    return {"waited": name}


@server.tool()
async def hold(folder: str) -> dict[str, Any]:
    """Like `wait`, for a test in another process: write the file `begun`, then wait for the file `go`."""
    begun = Path(folder) / "begun"
    with begun.open("a") as file:
        file.write("x")
    while not (Path(folder) / "go").exists():
        await asyncio.sleep(0.02)
    return {"begun": len(begun.read_text())}
