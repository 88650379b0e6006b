"""A plain SDK server as a module, and helpers that run it in a `LocalBackend`."""

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
from tests.gateway.fakes import FakeResponseWriter, Rig

HANDSHAKE = "2025-11-25"


class Name(BaseModel):
    name: str


def plain_server() -> MCPServer[Any]:
    """A server without any knowledge of the gateway."""
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
    async def report(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("a line")
        return "reported"

    @server.tool()
    async def ask_name(ctx: Context) -> str:
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
    async def current_call() -> dict[str, Any]:
        current = CURRENT_CALL.get()
        return {"subject": current.caller.subject, "id": current.correlation_id, "meta": current.meta}

    @server.resource("note://one")
    def one() -> str:
        return "first"

    @server.resource("note://faulty")
    def faulty() -> str:
        raise Fault(Kind.UNAVAILABLE, "The database is unreachable.")

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
async def open_backend(
    server: Any = None, manifest: Manifest | None = None, namespace: str = "lab"
) -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(namespace, server or plain_server(), manifest or Manifest())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def running_rig(server: Any = None, **manifest: Any) -> AsyncIterator[Rig]:
    async with open_backend(server, Manifest(**manifest)) as backend, Rig(backend) as rig:
        yield rig


async def call_tool(rig: Rig, tool: str, era: str = "modern", **arguments: Any) -> FakeResponseWriter:
    params = {"name": f"lab_{tool}", "arguments": arguments, "_meta": {"progressToken": 7}}
    if era == "modern":
        meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
        return await rig.modern("tools/call", params, meta=meta)
    return await rig.legacy(await rig.session(), "tools/call", params)
