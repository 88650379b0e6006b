"""Roblox Studio: scripts and instances, through a plugin that connects to the gateway from inside Studio."""

from functools import partial
from typing import Any

from mcp.server import Server

from backends.gox.action import MIGRATIONS, WORDS, Action, Request, action_server, closed
from backends.roblox.options import Options
from backends.roblox.studio import Studio
from backends.roblox.tools import STUDIOS, TOOLS, Tool
from gateway.contract import Host, Json, Manifest
from gateway.errors import Fault, Kind

manifest = Manifest(
    error_style="protocol",
    codes=WORDS,
    options=Options,
    store="gox",
    effects={"list_studios": 0, **{tool.name: 2 if tool.effect == "write" else 0 for tool in TOOLS}},
    migrations=MIGRATIONS,
)


def server(home: Host) -> Server[Any]:
    """`roblox`; without the bridge it has no tools."""
    options: Options = home.options
    if not options.bridge_enabled:
        return action_server(home, "roblox", [])
    studio = Studio(home)
    actions = [_action(studio, tool, options) for tool in TOOLS]
    return action_server(home, "roblox", [*actions, _list_studios(home, studio)], studio.listed)


def _action(studio: Studio, tool: Tool, options: Options) -> Action:
    timeout = options.execute_timeout if tool.name == "script_execute" else options.request_timeout
    return Action(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        side_effect=tool.effect,
        run=partial(_run, studio, tool, timeout),
        input_schema=tool.takes,
        output_schema=tool.gives,
        requires_bridge=True,
    )


async def _run(studio: Studio, tool: Tool, timeout: float, request: Request) -> Json:
    payload = dict(request.arguments)
    if "value" in payload and payload["value"] is None:
        details = {"validation_path": "input.value", "validation_rule": "required"}
        raise Fault(Kind.INVALID_INPUT, "value is required", details=details)
    if "maxResults" in payload:
        payload["limit"] = payload.pop("maxResults")
    if tool.effect == "write":
        payload["dryRun"] = request.dry_run
    return await studio.ask(request, tool.operation, payload, timeout)


def _list_studios(home: Host, studio: Studio) -> Action:
    async def run(request: Request) -> Json:
        return {"studios": studio.listed(home.current_call().caller)}

    return Action(
        name="list_studios",
        title="List Studios",
        description="The Studios that are connected, which of them are yours, and how they do.",
        side_effect="read",
        run=run,
        input_schema=closed({}),
        output_schema=STUDIOS,
        requires_bridge=True,
    )
