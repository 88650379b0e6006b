"""Workflows: steps over every backend, each through the whole path, in runs that outlive the call and the process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams, ListToolsResult, PaginatedRequestParams

from backends.gox import registry
from backends.gox.action import MIGRATIONS, WORDS
from backends.gox.resources import add_resources
from backends.workflow.options import Options
from backends.workflow.recovery import Recovery
from backends.workflow.runner import Runner
from backends.workflow.tools import Tools, listed
from gateway.contract import Host, Json, Manifest

manifest = Manifest(
    error_style="protocol",
    codes=WORDS,
    options=Options,
    store="gox",
    uri_prefixes=("gox://",),
    effects={"run": 2, "cancel": 1, "status": 0, "list": 0, "logs": 0},
    migrations=MIGRATIONS,
)


_MARGIN = 60.0


def server(home: Host) -> Server[Any]:
    """`workflow`, and the resources of the contract."""
    runner = Runner(home, home.options)
    options: Options = home.options
    recovery = Recovery(home, runner, options.max_step_timeout + options.max_backoff + _MARGIN)
    tools = Tools(home, runner, recovery)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed())

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        return await tools.call(ctx, params.name, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        # Its tools are no actions: they count for nothing, and a step may name them.
        async with registry.joined(home, registry.Part("", frozenset())):
            looking = asyncio.create_task(recovery.of_all())
            yield
            looking.cancel()

    made = Server[Any]("workflow", on_list_tools=list_tools, lifespan=lifespan)
    # Registered by hand: the handler answers a plain object, which the constructor's type does not admit.
    made.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    add_resources(made, home)
    return made
