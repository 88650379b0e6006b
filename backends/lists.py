"""List handlers for MCP servers whose lists never change."""

from collections.abc import Sequence
from typing import Any

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import PaginatedRequestParams

from gateway.contract import Json


def answer_lists(
    server: Server[Any],
    *,
    tools: Sequence[Json],
    resources: Sequence[Json],
    templates: Sequence[Json],
    prompts: Sequence[Json],
) -> None:
    """Register handlers for the four list methods; each returns the complete list in one page."""
    lists: dict[str, Json] = {
        "tools/list": {"tools": list(tools)},
        "resources/list": {"resources": list(resources)},
        "resources/templates/list": {"resourceTemplates": list(templates)},
        "prompts/list": {"prompts": list(prompts)},
    }
    for method, listed in lists.items():

        async def answer(
            ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None, listed: Json = listed
        ) -> Json:
            return listed

        # The handlers return plain objects, which the types of the `Server` constructor do not allow.
        server.add_request_handler(method, PaginatedRequestParams, answer)
