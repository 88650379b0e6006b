"""The `godot` backend: tools for scenes, scripts, resources and settings of Godot 4 projects.

A connected editor, a headless engine or direct file edits execute each call.
"""

from typing import Any

from mcp.server import Server

from backends.godot.bridge import SCOPE
from backends.godot.envelope import CODES, render_error
from backends.godot.options import Options
from backends.godot.server import create_server
from backends.godot.tool_table import TOOLS
from gateway.contract import Host, Manifest

manifest = Manifest(
    codes=CODES,
    render_error=render_error,
    options=Options,
    uri_prefixes=("godot://", "godot-template://"),
    effects={tool.name: tool.effect for tool in TOOLS.values()},
    timeouts={tool.name: tool.timeout for tool in TOOLS.values() if tool.timeout is not None},
    tasks=("export_project", "export_pack", "convert_3to4", "validate_conversion_3to4", "generate_docs"),
    executor=True,
    scopes={SCOPE: "Connect a Godot editor"},
    environment={
        "GODOT_PATH": "godot_path",
        "ALLOW_DANGEROUS_OPS": "allow_dangerous_ops",
        "ALLOW_EXTERNAL_TOOLS": "allow_external_tools",
    },
    peer_noun="editor",
)


def server(host: Host) -> Server[Any]:
    """Create the MCP server of one configured `godot` backend."""
    return create_server(host)
