"""The tables: every tool is a row."""

from collections.abc import Mapping
from typing import Final

from backends.godot.job import Tool
from backends.godot.rows.managers import MANAGERS
from backends.godot.rows.plain import PLAIN

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in sorted((*PLAIN, *MANAGERS), key=lambda tool: tool.name)}
