"""The `knowledge` backend: a shared, versioned memory of entries and triples with search, history and undo."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    ReadResourceRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from backends.knowledge import prompts
from backends.knowledge.options import Options
from backends.knowledge.resource_list import RESOURCES, TEMPLATES
from backends.knowledge.tools import TOOLS
from backends.lists import answer_lists
from gateway.contract import Host, Json, Manifest
from gateway.contract.deferred import Deferred
from gateway.errors import Kind

if TYPE_CHECKING:
    from backends.knowledge.requests import KnowledgeRequests

ERROR_CODES: Final[Mapping[Kind, str]] = {
    Kind.INVALID_INPUT: "validation",
    Kind.TOO_LARGE: "validation",
    Kind.UNAUTHENTICATED: "policy",
    Kind.DENIED: "policy",
    Kind.APPROVAL_REQUIRED: "policy",
    Kind.NOT_FOUND: "not_found",
    Kind.ILLEGAL_STATE: "conflict",
    Kind.RATE_LIMITED: "policy",
    Kind.UNSUPPORTED: "dependency",
    Kind.UNAVAILABLE: "dependency",
    Kind.TIMEOUT: "dependency",
    Kind.CANCELLED: "internal",
    Kind.INTERNAL: "internal",
}
"""Maps each fault kind to the error code of the knowledge contract."""


def _render_error(error: Json, tool: str, arguments: Json) -> Json:
    return {"ok": False, "error": error}


_WRITES = frozenset(tool.name for tool in TOOLS if tool.effect)

manifest = Manifest(
    codes=ERROR_CODES,
    render_error=_render_error,
    options=Options,
    uri_prefixes=("knowledge://",),
    effects={tool.name: tool.effect for tool in TOOLS},
    timeouts={"ingest": 600.0},
    tasks=("ingest",),
    migrations=Path(__file__).parent / "migrations",
    subscribe_by_tenant=True,
    dry_run=_WRITES,
    idempotency_keys=_WRITES,
)

_INSTRUCTIONS: Final = (
    "A memory shared by all members of this organisation. Query before you store. Correct an entry with update instead "
    "of storing it again. State relations with relate. Every change is recorded in the history and can be undone."
)

Ctx = ServerRequestContext[Any, Any]


def server(host: Host) -> Server[Any]:
    """Create the MCP server of this backend. The gateway calls it once when it loads the module."""

    def build() -> "KnowledgeRequests":
        from backends.knowledge.requests import KnowledgeRequests

        return KnowledgeRequests(host)

    requests = Deferred(build, "backends.knowledge.requests")
    if host.options.semantic:
        requests.build()  # the operator should see now whether its packages are missing

    async def call_tool(ctx: Ctx, params: CallToolRequestParams) -> Json:
        return await (await requests.get()).call_tool(ctx, params.name, params.arguments or {})

    async def read_resource(ctx: Ctx, params: ReadResourceRequestParams) -> Json:
        return await (await requests.get()).read_resource(ctx, str(params.uri))

    async def subscribe(ctx: Ctx, params: SubscribeRequestParams) -> Json:
        return await (await requests.get()).subscribe(ctx, str(params.uri))

    async def unsubscribe(ctx: Ctx, params: UnsubscribeRequestParams) -> Json:
        return (await requests.get()).unsubscribe(str(params.uri))

    async def get_prompt(ctx: Ctx, params: GetPromptRequestParams) -> Json:
        return prompts.get(params.name, params.arguments or {}, host.namespace)

    async def complete(ctx: Ctx, params: CompleteRequestParams) -> Json:
        return await (await requests.get()).complete(ctx, params.argument.name, params.argument.value)

    @asynccontextmanager
    async def lifespan(mcp_server: Server[Any]) -> AsyncGenerator[None]:
        yield
        if requests.built is not None:
            requests.built.close()

    mcp_server = Server[Any]("knowledge", instructions=_INSTRUCTIONS, lifespan=lifespan)
    answer_lists(
        mcp_server,
        tools=[tool.definition() for tool in TOOLS],
        resources=RESOURCES,
        templates=TEMPLATES,
        prompts=[prompt.definition() for prompt in prompts.PROMPTS.values()],
    )
    mcp_server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    mcp_server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    mcp_server.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    mcp_server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    mcp_server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    mcp_server.add_request_handler("completion/complete", CompleteRequestParams, complete)
    return mcp_server
