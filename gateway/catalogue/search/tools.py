"""The three tools that an endpoint lists instead of its own when it is searched."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from gateway.catalogue.names import CALL_TOOL, DESCRIBE_TOOLS, SEARCH_TOOLS
from gateway.catalogue.schema import compile_check
from gateway.contract import Json

DEFAULT_RESULTS: Final = 5
MAX_RESULTS: Final = 20
MAX_DESCRIBED: Final = 20
MAX_QUERY: Final = 500
_MAX_NAMESPACES: Final = 40

_READS: Final[Json] = {"readOnlyHint": True, "openWorldHint": False}

SEARCH_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_QUERY,
            "description": "What you want to do, in a few words, such as: create an issue in a repository.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_RESULTS,
            "description": f"Maximum number of results, {DEFAULT_RESULTS} by default.",
        },
        "kinds": {
            "type": "array",
            "items": {"enum": ["tool", "prompt", "resource"]},
            "description": "What to search; tools by default.",
        },
        "namespace": {"type": "string", "description": "Search one namespace alone."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
DESCRIBE_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "names": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": MAX_DESCRIBED,
            "description": "Names of tools, as search_tools returned them.",
        }
    },
    "required": ["names"],
    "additionalProperties": False,
}
CALL_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "Name of the tool, as search_tools returned it."},
        "arguments": {"type": "object", "description": "Arguments of the tool, as its inputSchema requires."},
    },
    "required": ["name"],
    "additionalProperties": False,
}

check_search: Final = compile_check(SEARCH_SCHEMA)
check_describe: Final = compile_check(DESCRIBE_SCHEMA)
check_call: Final = compile_check(CALL_SCHEMA)


def search_tool_definitions(namespaces: Mapping[str, int]) -> list[Json]:
    """The definitions for a view whose namespaces have these numbers of tools."""
    shown = [f"{name} ({count})" for name, count in Counter(namespaces).most_common(_MAX_NAMESPACES) if count]
    more = len([count for count in namespaces.values() if count]) - len(shown)
    contents = ", ".join([*shown, f"and {more} more"] if more > 0 else shown) or "none"
    return [
        {
            "name": SEARCH_TOOLS,
            "title": "Search tools",
            "description": "Find the tools of this server that fit a task. Each result has the name and the inputSchema"
            f" with which {CALL_TOOL} calls it. Search again with other words if nothing fits."
            f" Namespaces and their numbers of tools: {contents}.",
            "inputSchema": SEARCH_SCHEMA,
            "annotations": _READS,
        },
        {
            "name": DESCRIBE_TOOLS,
            "title": "Describe tools",
            "description": "Return the complete definitions of tools whose names are known.",
            "inputSchema": DESCRIBE_SCHEMA,
            "annotations": _READS,
        },
        {
            "name": CALL_TOOL,
            "title": "Call a tool",
            "description": f"Call a tool that {SEARCH_TOOLS} found.",
            "inputSchema": CALL_SCHEMA,
        },
    ]
