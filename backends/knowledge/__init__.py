"""`knowledge`: a shared memory that can be trusted, corrected and undone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

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

from backends.knowledge import prompts, resources
from backends.knowledge.call_context import Library, visit
from backends.knowledge.options import Options
from backends.knowledge.tool_dispatcher import Desk
from backends.knowledge.tools import TOOLS
from backends.lists import answer_lists
from gateway.contract import Host, Json, Manifest
from gateway.errors import Kind

WORDS: Final[Mapping[Kind, str]] = {
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
"""The contract's own code for each kind of fault."""


def _dress(error: Json, tool: str, arguments: Json) -> Json:
    return {"ok": False, "error": error}


manifest = Manifest(
    codes=WORDS,
    render_error=_dress,
    options=Options,
    uri_prefixes=("knowledge://",),
    effects={tool.name: tool.effect for tool in TOOLS},
    timeouts={"ingest": 600.0},
    migrations=Path(__file__).parent / "migrations",
    subscribe_by_tenant=True,
)

_INSTRUCTIONS: Final = (
    "A memory shared by everybody in this organisation. Before you store, query; correct an entry with update instead "
    "of storing it again; state relations with relate. Every change is in the history and can be undone."
)

Ctx = ServerRequestContext[Any, Any]


def server(home: Host) -> Server[Any]:
    library = Library(home)
    desk = Desk(library)

    async def call_tool(ctx: Ctx, params: CallToolRequestParams) -> Json:
        return await desk.call(visit(library, ctx), params.name, params.arguments or {})

    async def read_resource(ctx: Ctx, params: ReadResourceRequestParams) -> Json:
        async with visit(library, ctx).open() as book:
            return await resources.read(book, str(params.uri))

    async def subscribe(ctx: Ctx, params: SubscribeRequestParams) -> Json:
        library.announcer.watch(home.current_call().caller.tenant, str(params.uri))
        return {}

    async def unsubscribe(ctx: Ctx, params: UnsubscribeRequestParams) -> Json:
        library.announcer.unwatch(home.current_call().caller.tenant, str(params.uri))
        return {}

    async def get_prompt(ctx: Ctx, params: GetPromptRequestParams) -> Json:
        return prompts.get(params.name, params.arguments or {}, home.namespace)

    async def complete(ctx: Ctx, params: CompleteRequestParams) -> Json:
        async with visit(library, ctx).open() as book:
            return await prompts.complete(book, params.argument.name, params.argument.value)

    made = Server[Any]("knowledge", instructions=_INSTRUCTIONS)
    answer_lists(
        made,
        tools=[tool.definition() for tool in TOOLS],
        resources=resources.RESOURCES,
        templates=resources.TEMPLATES,
        prompts=[prompt.definition() for prompt in prompts.PROMPTS.values()],
    )
    made.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    made.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    made.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    made.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    made.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    made.add_request_handler("completion/complete", CompleteRequestParams, complete)
    return made
