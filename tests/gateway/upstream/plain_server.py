"""A module in this process as a newcomer writes it, and the house around it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Completion
from pydantic import BaseModel

from gateway.contract import Manifest
from gateway.errors import Fault, Kind
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.local import LocalBackend
from tests.gateway.fakes import Paper, Rig

OLD = "2025-11-25"


class Name(BaseModel):
    name: str


def plain() -> MCPServer[Any]:
    """What a newcomer writes: a server that knows nothing of the gateway."""
    server: MCPServer[Any] = MCPServer("plain", version="3", instructions="Be plain.")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def slow(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    @server.tool()
    async def tell(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("a line")
        return "told"

    @server.tool()
    async def who(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", Name)
        return answer.data.name if answer.action == "accept" else answer.action

    @server.tool()
    async def fail(how: str) -> str:
        if how == "fault":
            raise Fault(Kind.ILLEGAL_STATE, "Not now.", code="BUSY")
        if how == "tool error":
            raise ToolError("You may read this.")
        raise ValueError("/srv/secret")

    @server.tool()
    async def here() -> dict[str, Any]:
        seen = CURRENT_CALL.get()
        return {"subject": seen.caller.subject, "id": seen.correlation_id, "meta": seen.meta}

    @server.resource("note://one")
    def one() -> str:
        return "first"

    @server.resource("note://faulty")
    def faulty() -> str:
        raise Fault(Kind.UNAVAILABLE, "The shelf is away.")

    @server.resource("note://broken")
    def broken() -> str:
        raise ValueError("/srv/secret")

    @server.resource("note://by/{id}")
    def by_id(id: str) -> str:
        return f"note {id}"

    @server.prompt()
    def greet(name: str) -> str:
        if name == "fault":
            raise Fault(Kind.DENIED, "Not you.")
        if name == "broken":
            raise ValueError("/srv/secret")
        return f"Hello {name}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[f"{argument.value}!"])

    return server


@asynccontextmanager
async def opened(
    server: Any = None, manifest: Manifest | None = None, namespace: str = "lab"
) -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(namespace, server or plain(), manifest or Manifest())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def rig(server: Any = None, **manifest: Any) -> AsyncIterator[Rig]:
    async with opened(server, Manifest(**manifest)) as backend, Rig(backend) as running:
        yield running


async def called(running: Rig, tool: str, era: str = "modern", **arguments: Any) -> Paper:
    params = {"name": f"lab_{tool}", "arguments": arguments, "_meta": {"progressToken": 7}}
    if era == "modern":
        meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
        return await running.modern("tools/call", params, meta=meta)
    return await running.legacy(await running.session(), "tools/call", params)
