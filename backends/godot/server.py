"""The backend's MCP server: dispatches tool calls, writes their audit lines and returns the response envelope."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    GetPromptRequestParams,
    ReadResourceRequestParams,
    SubscriptionsListenRequestParams,
)

from backends.godot import prompts, resources
from backends.godot.bridge import EditorBridge
from backends.godot.dispatch import perform
from backends.godot.envelope import CODES, DURATION_KEY, TIMEOUT, Outcome, build_meta, render_success
from backends.godot.parameter_notation import parse_defaults
from backends.godot.paths import Project
from backends.godot.refused_calls import RefusedCallAudit
from backends.godot.services import Services
from backends.godot.tool import Tool, ToolCall
from backends.godot.tool_table import select_tools
from backends.lists import answer_lists
from gateway.contract import Host, Json
from gateway.errors import Fault, Kind

_INSTRUCTIONS: Final = (
    "Godot 4 projects. projectPath is absolute (list_projects and create_project: below the folders that"
    " meta_tool_manager server_info names); every other path is relative to the project. Look with get_node_tree before"
    " changing a scene, check with validate_project, run with godot_workspace_manager smoke_test."
)


def create_server(host: Host) -> Server[Any]:
    """Create the MCP server with its services, request handlers and lifespan."""
    listed = select_tools(host.options.profile)
    services = Services(host, listed)
    host.add_routes(*EditorBridge(host).routes())
    host.on_refusal(RefusedCallAudit(services).record)
    tools = [tool.definition(gate_open=services.options.allow_dangerous_ops) for tool in listed.values()]

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        tool = listed.get(params.name)
        if tool is None:
            raise Fault(Kind.UNSUPPORTED, f"There is no tool {params.name!r}.")

        async def report(progress: float, total: float | None, message: str) -> None:
            await ctx.session.report_progress(progress, total, message)

        arguments = params.arguments or {}
        return await _AuditedCall(services, tool, arguments).call(report)

    async def read_resource(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        return await resources.read(services, host.current_call().caller, str(params.uri))

    async def get_prompt(ctx: ServerRequestContext[Any], params: GetPromptRequestParams) -> Json:
        return prompts.get(params.name, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[Services, None]:
        sweep = asyncio.create_task(services.engine_pool.sweep())
        try:
            with host.peers.subscribe(services.events.record):
                yield services
        finally:
            sweep.cancel()
            await services.close()

    server = Server[Any]("godot", instructions=_INSTRUCTIONS, lifespan=lifespan)
    answer_lists(
        server,
        tools=tools,
        resources=resources.list_resources(),
        templates=resources.list_templates(),
        prompts=prompts.list_prompts(),
    )
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, services.events.listen)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    return server


class _AuditedCall:
    """One tool call: resolves the project, runs the tool and writes the line in the project's audit log."""

    def __init__(self, services: Services, tool: Tool, arguments: Json) -> None:
        current = services.host.current_call()
        self._services = services
        self._tool = tool
        self._arguments = arguments
        self._caller = current.caller
        self._correlation_id = current.correlation_id
        self._started = perf_counter()
        self._project: Project | None = None

    async def call(self, report: Any) -> Json:
        try:
            outcome = await self._run(report)
        except Fault as fault:
            fault.details[DURATION_KEY] = self._elapsed_ms()
            await self._record(
                {"ok": False, "summary": fault.message, "error": {"code": fault.code or CODES[fault.kind]}}
            )
            raise
        except asyncio.CancelledError:
            # A cancelled task cannot await the write, so a background task does it.
            self._services.host.spawn(
                self._record({"ok": False, "summary": "The call was cancelled.", "error": {"code": TIMEOUT}})
            )
            raise
        await self._record({"ok": True, "summary": outcome.summary})
        meta = build_meta(self._tool.name, self._action(), self._correlation_id, self._elapsed_ms())
        return render_success(outcome, meta)

    async def _run(self, report: Any) -> Outcome:
        tool, arguments, services = self._tool, self._arguments, self._services
        if (project_path := arguments.get("projectPath")) is not None:
            self._project = await asyncio.to_thread(services.local_or_remote_project, self._caller, project_path)
            if tool.needs_project:
                self._project.check_exists()
        action = tool.find_action(arguments.get("action"))
        signature = f"{tool.common_signature} {action.signature}" if action else tool.signature
        arguments = {**parse_defaults(signature), **arguments}
        call = ToolCall(
            tool.name, action.name if action else None, arguments, self._caller, services, report, self._project
        )
        async with AsyncExitStack() as stack:
            if self._project is not None and tool.takes_project_lock and tool.effect:
                await stack.enter_async_context(services.project_lock(self._project))
            outcome = await perform(tool, action, call)
        if self._project is not None and tool.effect:
            # Changes to a project that was deleted during the call are lost: report an error instead of success.
            self._project.check_exists()
        return outcome

    async def _record(self, outcome_entry: Json) -> None:
        project = self._project
        if project is not None and not project.is_remote and (project.root / "project.godot").is_file():
            await asyncio.to_thread(
                self._services.audit.write,
                project,
                self._correlation_id,
                self._tool.name,
                self._arguments,
                outcome_entry,
            )

    def _action(self) -> str | None:
        action = self._arguments.get("action")
        return action if isinstance(action, str) else None

    def _elapsed_ms(self) -> int:
        return round((perf_counter() - self._started) * 1000)
