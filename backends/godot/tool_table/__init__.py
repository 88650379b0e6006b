"""The tool table: every tool of the backend is one `Tool` entry."""

from collections.abc import Mapping
from typing import Final

from backends.godot.tool import Tool
from backends.godot.tool_table.authoring import AUTHORING_TOOLS
from backends.godot.tool_table.managers import MANAGER_TOOLS
from backends.godot.tool_table.simple import SIMPLE_TOOLS

TOOLS: Final[Mapping[str, Tool]] = {
    tool.name: tool for tool in sorted((*SIMPLE_TOOLS, *AUTHORING_TOOLS, *MANAGER_TOOLS), key=lambda tool: tool.name)
}
