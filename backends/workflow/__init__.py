"""The `workflow` backend: runs sequences of tool calls over all backends.

Each step is an ordinary call through all stages of the gateway. A run continues after the client's call ends and
resumes after a restart.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams, ListToolsResult, PaginatedRequestParams

from backends.gox import registry
from backends.gox.action import ERROR_CODES, MIGRATIONS
from backends.gox.resources import add_resources
from backends.workflow import outputs
from backends.workflow.options import Options
from backends.workflow.recovery import Recovery
from backends.workflow.runner import Runner
from backends.workflow.tools import WorkflowTools, tool_definitions
from gateway.contract import Host, Json, Manifest

manifest = Manifest(
    error_style="protocol",
    codes=ERROR_CODES,
    options=Options,
    store="gox",
    uri_prefixes=("gox://",),
    effects={"run": 2, "cancel": 1, "status": 0, "list": 0, "logs": 0},
    migrations=MIGRATIONS,
    dry_run=frozenset({"run"}),  # every step gets the flag; a run with a step that has no dry run is rejected
    idempotency_keys=frozenset({"run"}),
)


_MARGIN = 60.0


def server(host: Host) -> Server[Any]:
    """Build the `workflow` backend with its tools and the `gox://` resources."""
    runner = Runner(host, host.options)
    options: Options = host.options
    recovery = Recovery(host, runner, options.max_step_timeout + options.max_backoff + _MARGIN)
    tools = WorkflowTools(host, runner, recovery)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tool_definitions())

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        return await tools.call(ctx, params.name, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        # Registered without actions: workflow tools do not count in `actionsCount`.
        async with registry.register(host, registry.Member("", frozenset())):
            recovery_task = asyncio.create_task(recovery.run_forever())
            yield
            recovery_task.cancel()

    made = Server[Any]("workflow", on_list_tools=list_tools, lifespan=lifespan)
    # The handler returns a plain object, which the type of the `Server` constructor does not allow.
    made.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    add_resources(made, host, outputs.read)
    return made
