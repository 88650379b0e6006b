"""A backend with a thousand tools, for `bench.tool_lists`."""

from typing import Any

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, Tool

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "project": {"type": "string", "description": "Key of the project."},
        "summary": {"type": "string", "description": "One line that says what is wrong."},
        "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels of the item."},
    },
    "required": ["project", "summary"],
    "additionalProperties": False,
}
_TEXT = "Create an item of this kind in a project and return its number, its state and a link to it."
_TOOLS = [Tool(name=f"create_{number}", description=_TEXT, input_schema=_SCHEMA) for number in range(1000)]


async def _list(ctx: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=_TOOLS)


async def _call(ctx: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=[])


server = Server("bench", on_list_tools=_list, on_call_tool=_call)
