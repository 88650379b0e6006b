"""The backend's server: tools from the tables, each call confined, recorded and answered in the envelope."""

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
from backends.godot.dispatch import perform
from backends.godot.envelope import DURATION, TIMEOUT, WORDS, Outcome, answer, meta_of
from backends.godot.parameter_notation import defaults
from backends.godot.paths import Project
from backends.godot.refused_calls import Refusals
from backends.godot.services import Desk
from backends.godot.tool import Job, Tool
from backends.godot.tool_table import TOOLS
from backends.lists import answer_lists
from gateway.contract import Host, Json
from gateway.errors import Fault, Kind

_INSTRUCTIONS: Final = (
    "Godot 4 projects. projectPath is absolute (list_projects and create_project: below the folders that"
    " meta_tool_manager server_info names); every other path is relative to the project. Look with get_node_tree before"
    " changing a scene, check with validate_project, run with godot_workspace_manager smoke_test."
)


def make(home: Host) -> Server[Any]:
    desk = Desk(home, TOOLS)
    home.on_refusal(Refusals(desk).told)
    listed = [tool.definition(gate_open=desk.options.allow_dangerous_ops) for tool in TOOLS.values()]

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise Fault(Kind.UNSUPPORTED, f"There is no tool {params.name!r}.")

        async def report(progress: float, total: float | None, message: str) -> None:
            await ctx.session.report_progress(progress, total, message)

        arguments = params.arguments or {}
        return await _Recorded(desk, tool, arguments).call(report)

    async def read_resource(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        return await resources.read(desk, home.current_call().caller, str(params.uri))

    async def get_prompt(ctx: ServerRequestContext[Any], params: GetPromptRequestParams) -> Json:
        return prompts.get(params.name, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[Desk, None]:
        sweep = asyncio.create_task(desk.workers.sweep())
        try:
            with home.bridge.subscribe(desk.events.told):
                yield desk
        finally:
            sweep.cancel()
            await desk.close()

    server = Server[Any]("godot", instructions=_INSTRUCTIONS, lifespan=lifespan)
    answer_lists(
        server, tools=listed, resources=resources.listed(), templates=resources.templates(), prompts=prompts.listed()
    )
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, desk.events.listen)
    server.add_request_handler("prompts/get", GetPromptRequestParams, get_prompt)
    return server


class _Recorded:
    """One call, from its project's path to the line in its project's log."""

    def __init__(self, desk: Desk, tool: Tool, arguments: Json) -> None:
        here = desk.home.current_call()
        self._desk = desk
        self._tool = tool
        self._arguments = arguments
        self._caller = here.caller
        self._id = here.correlation_id
        self._started = perf_counter()
        self._project: Project | None = None

    async def call(self, report: Any) -> Json:
        try:
            outcome = await self._carry_out(report)
        except Fault as fault:
            fault.details[DURATION] = self._took()
            await self._record(
                {"ok": False, "summary": fault.message, "error": {"code": fault.code or WORDS[fault.kind]}}
            )
            raise
        except asyncio.CancelledError:
            # Written by a thread of its own: this task may not wait any more.
            self._desk.home.spawn(self._record({"ok": False, "summary": "It was ended.", "error": {"code": TIMEOUT}}))
            raise
        await self._record({"ok": True, "summary": outcome.summary})
        meta = meta_of(self._tool.name, self._action(), self._id, self._took())
        return answer(outcome, meta)

    async def _carry_out(self, report: Any) -> Outcome:
        tool, arguments, desk = self._tool, self._arguments, self._desk
        if (given := arguments.get("projectPath")) is not None:
            self._project = await asyncio.to_thread(desk.project_or_editors, self._caller, given)
            if tool.needs_project:
                self._project.check()
        action = tool.chosen(arguments.get("action"))
        written = f"{tool.common} {action.written}" if action else tool.written
        arguments = {**defaults(written), **arguments}
        job = Job(tool.name, action.name if action else None, arguments, self._caller, desk, report, self._project)
        async with AsyncExitStack() as stack:
            if self._project is not None and tool.locks and tool.effect:
                await stack.enter_async_context(desk.lock(self._project))
            outcome = await perform(tool, action, job)
        if self._project is not None and tool.effect:
            # What was written into a project that somebody deleted meanwhile is not saved.
            self._project.check()
        return outcome

    async def _record(self, end: Json) -> None:
        project = self._project
        if project is not None and not project.remote and (project.root / "project.godot").is_file():
            await asyncio.to_thread(self._desk.audit.write, project, self._id, self._tool.name, self._arguments, end)

    def _action(self) -> str | None:
        action = self._arguments.get("action")
        return action if isinstance(action, str) else None

    def _took(self) -> int:
        return round((perf_counter() - self._started) * 1000)
