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

_CORE: Final = frozenset(
    {
        "create_project", "list_projects", "set_project_setting", "manage_input_actions", "validate_project",
        "create_scene", "create_inherited_scene", "list_scenes", "get_node_tree", "add_node", "edit_node",
        "remove_node", "instance_scene", "connect_signal", "write_script", "read_script", "attach_script",
        "create_collision_shape", "create_tileset", "create_tilemap_layer", "paint_tiles", "add_animation",
        "take_screenshot", "godot_game_manager", "meta_tool_manager",
    }
)  # fmt: skip
"""The tools of the profile `core`."""


def select_tools(profile: str) -> Mapping[str, Tool]:
    """Return the tools of a profile: `core` or `full`."""
    return {name: tool for name, tool in TOOLS.items() if profile == "full" or name in _CORE}
