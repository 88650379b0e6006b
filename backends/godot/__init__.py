"""Godot projects: scenes, scripts, resources and settings, by a connected editor, a headless engine, or their files."""

from typing import Any

from mcp.server import Server

from backends.godot.envelope import WORDS, dress
from backends.godot.options import Options
from backends.godot.server import make
from backends.godot.tool_table import TOOLS
from gateway.contract import Host, Manifest

manifest = Manifest(
    codes=WORDS,
    render_error=dress,
    options=Options,
    uri_prefixes=("godot://", "godot-template://"),
    effects={tool.name: tool.effect for tool in TOOLS.values()},
    timeouts={tool.name: tool.timeout for tool in TOOLS.values() if tool.timeout is not None},
    executor=True,
)


def server(home: Host) -> Server[Any]:
    """`godot`."""
    return make(home)
