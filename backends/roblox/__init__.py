"""The `roblox` backend: edits scripts and instances in Roblox Studio.

A plugin inside Studio connects through the routes of `bridge` and executes the operations.
"""

from functools import partial
from typing import Any

from mcp.server import Server

from backends.gox.action import ERROR_CODES, MIGRATIONS, Action, Request, action_server, closed_schema
from backends.roblox.bridge import SCOPE, StudioBridge
from backends.roblox.options import Options
from backends.roblox.studio import StudioClient
from backends.roblox.tools import EXTENDED_TOOLS, STUDIO_LIST_SCHEMA, TOOLS, Tool
from gateway.contract import Host, Json, Manifest
from gateway.errors import Fault, Kind

UNDO_SCOPE = "roblox:undo-tenant"
_WRITES = frozenset(tool.name for tool in (*TOOLS, *EXTENDED_TOOLS) if tool.effect == "write")

manifest = Manifest(
    error_style="protocol",
    codes=ERROR_CODES,
    options=Options,
    store="gox",
    effects={
        "list_studios": 0,
        **{tool.name: 2 if tool.effect == "write" else 0 for tool in (*TOOLS, *EXTENDED_TOOLS)},
    },
    migrations=MIGRATIONS,
    scopes={SCOPE: "Connect Roblox Studio", UNDO_SCOPE: "Undo changes of other users in Roblox Studio"},
    environment={"GOX_BRIDGE_ENABLED": "bridge_enabled"},
    peer_noun="Studio",
    dry_run=_WRITES,
    idempotency_keys=_WRITES,
)


def server(host: Host) -> Server[Any]:
    """Build the `roblox` backend. It has neither tools nor routes when the bridge is disabled."""
    options: Options = host.options
    if not options.bridge_enabled:
        return action_server(host, "roblox", [])
    host.add_routes(*StudioBridge(host).routes())
    studio = StudioClient(host)
    offered = (*TOOLS, *EXTENDED_TOOLS) if options.extended_tools else TOOLS
    actions = [_action(host, studio, tool, options) for tool in offered]
    return action_server(host, "roblox", [*actions, _list_studios(host, studio)], studio.list_studios)


def _action(host: Host, studio: StudioClient, tool: Tool, options: Options) -> Action:
    timeout = options.execute_timeout if tool.name in ("script_execute", "run_code") else options.request_timeout
    return Action(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        side_effect=tool.effect,
        run=partial(_run, studio, tool, timeout),
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        requires_bridge=True,
        validate=partial(_check, host),
    )


def _check(host: Host, arguments: Json) -> None:
    if arguments.get("scope") == "tenant" and UNDO_SCOPE not in host.current_call().caller.scopes:
        raise Fault(
            Kind.DENIED,
            f"Changes of others need the scope {UNDO_SCOPE}.",
            suggested_fix='Use a key with that scope, or leave out "scope".',
        )
    if "limit" in arguments and "maxResults" in arguments:
        details = {"validation_path": "input.maxResults", "validation_rule": "alias"}
        message = "maxResults is an alias of limit: send limit or maxResults, not both"
        raise Fault(Kind.INVALID_INPUT, message, details=details)


async def _run(studio: StudioClient, tool: Tool, timeout: float, request: Request) -> Json:
    payload = dict(request.arguments)
    if "value" in payload and payload["value"] is None:
        details = {"validation_path": "input.value", "validation_rule": "required"}
        raise Fault(Kind.INVALID_INPUT, "value is required", details=details)
    if "maxResults" in payload:
        payload["limit"] = payload.pop("maxResults")
    if tool.effect == "write":
        payload["dryRun"] = request.dry_run
    if "args" in payload:
        # The number of arguments: for Luau a JSON null is nil, and an array ends at the first one.
        payload["argCount"] = len(payload["args"])
    output = await studio.send(request, tool.operation, payload, timeout)
    if output.get("executed"):
        output.setdefault("returnValue", None)
    return output


def _list_studios(host: Host, studio: StudioClient) -> Action:
    async def run(request: Request) -> Json:
        return {"studios": studio.list_studios(host.current_call().caller)}

    return Action(
        name="list_studios",
        title="List Studios",
        description="List the connected Studios with their owner and connection state.",
        side_effect="read",
        run=run,
        input_schema=closed_schema({}),
        output_schema=STUDIO_LIST_SCHEMA,
        requires_bridge=True,
    )
