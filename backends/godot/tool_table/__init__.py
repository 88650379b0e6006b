"""The tables: every tool is a row."""

from collections.abc import Mapping
from typing import Final

from backends.godot.tool import Tool
from backends.godot.tool_table.managers import MANAGERS
from backends.godot.tool_table.simple import PLAIN

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in sorted((*PLAIN, *MANAGERS), key=lambda tool: tool.name)}
