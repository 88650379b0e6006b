"""An MCP server with the names, texts and behaviour that the official conformance suite expects, in both eras.

It does not protect `requestState`; the hosting server must seal it.
"""

from typing import Any

from mcp import MCPError
from mcp.server import Server
from mcp.server.subscriptions import ListenHandler
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from tests.conformance.exchange import Context, Exchange, InputNeeded
from tests.conformance.prompts import complete, get_prompt, list_prompts
from tests.conformance.resources import list_resources, list_templates, read_resource
from tests.conformance.subscribers import Subscribers
from tests.conformance.tools import TOOLS


def build() -> Server[Any]:
    subscribers = Subscribers()

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.name not in TOOLS:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        _, handler = TOOLS[params.name]
        try:
            return await handler(Exchange(ctx, params, subscribers), params.arguments or {})
        except InputNeeded as needed:
            return needed.result

    async def prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
        try:
            return await get_prompt(Exchange(ctx, params, subscribers), params)
        except InputNeeded as needed:
            return needed.result

    built = Server[Any](
        "conformance-fixture",
        version="1.0.0",
        get_tool_input_schema=_schema,
        on_list_tools=_list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=_subscribe,
        on_unsubscribe_resource=_unsubscribe,
        on_subscriptions_listen=ListenHandler(subscribers.bus),
        on_list_prompts=list_prompts,
        on_get_prompt=prompt,
        on_completion=complete,
    )
    built.middleware.append(subscribers.remember_session)
    built.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)
    return built


def _schema(name: str) -> dict[str, Any] | None:
    return TOOLS[name][0].input_schema if name in TOOLS else None


async def _list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[definition for definition, _ in TOOLS.values()])


async def _subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def _unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def _set_level(ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()
