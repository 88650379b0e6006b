"""The server of the launch tools: every call in one envelope, in telemetry, and in one form of failure."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams

from backends.launch import resources
from backends.launch.errors import WORDS, internal
from backends.launch.events import News, Span, now
from backends.launch.outbound import Outward
from backends.launch.publishing import Publishing
from backends.launch.run_scheduler import Conductor
from backends.launch.run_store import Shelf
from backends.launch.run_tools import Launches
from backends.launch.start_tools import Starting
from backends.launch.telemetry import Telemetry
from backends.launch.tool_call import Ask
from backends.launch.tools import tools
from gateway.contract import CurrentCall, Host, Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

Handler = Callable[[Ask], Awaitable[Json]]

_INSTRUCTIONS: Final = (
    "Start a run, then ask for its status until it is READY_FOR_PR (open the pull request) or VALIDATING (fix the next"
    " issue, again and again). A failed gate is in validation_report.ok, not an error."
)
_QUIET: Final = frozenset({"launch_get_status", "launch_get_artifact", "launch_list_runs", "get_run_telemetry"})


def launch_server(home: Host) -> Server[Any]:
    outward = Outward(home)
    telemetry = Telemetry(home, outward)
    shelf, conductor = Shelf(home), Conductor(home, telemetry)
    launches = Launches(home, shelf, conductor, Publishing(home, outward))
    door = _Door(home, shelf, telemetry, {**_starters(Starting(home, shelf, conductor, outward)), **_others(launches)})
    listed = tools()

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        return await door.call(ctx, params.name, params.arguments or {})

    async def read_resource(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        return await resources.read(shelf, home.current_call().caller, str(params.uri))

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await outward.close()

    server = Server[Any](
        "launch",
        instructions=_INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_list_resources=resources.list_none,
        on_list_resource_templates=resources.list_templates,
    )
    # Registered by hand: the handlers answer plain objects, which the constructor's types do not admit.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    return server


def _starters(starting: Starting) -> dict[str, Handler]:
    return {
        "launch_start_run": starting.start_run,
        "launch_start_run_from_product_url": starting.start_from_product_url,
        "launch_start_run_from_url": starting.start_from_product_url,
        "launch_start_run_from_github_repo_url": starting.start_from_github,
    }


def _others(launches: Launches) -> dict[str, Handler]:
    return {
        "launch_get_status": launches.get_status,
        "launch_get_artifact": launches.get_artifact,
        "launch_validate": launches.validate,
        "launch_fix_next": launches.fix_next,
        "launch_resume": launches.resume,
        "launch_cancel": launches.cancel,
        "launch_open_pr": launches.open_pr,
        "launch_list_runs": launches.list_runs,
        "get_run_telemetry": launches.telemetry,
    }


class _Door:
    def __init__(self, home: Host, shelf: Shelf, telemetry: Telemetry, handlers: dict[str, Handler]) -> None:
        self._home = home
        self._shelf = shelf
        self._telemetry = telemetry
        self._handlers = handlers

    async def call(self, ctx: ServerRequestContext[Any], name: str, arguments: Json) -> Json:
        here = self._home.current_call()
        ask = Ask(here.caller, arguments, _span(here), _Steps(ctx))
        started, clock = now(), time.monotonic()
        about: Json = {"tool": name, "arguments": sorted(arguments), "correlation_id": here.correlation_id}
        try:
            answer = await self._carry_out(name, ask)
        except Fault as fault:
            about |= {"status": "failure", "error": fault.code or WORDS.get(fault.kind, fault.kind.upper())}
            about["run_id"] = fault.details.get("run_id", arguments.get("run_id"))
            raise
        else:
            about |= {"status": "success", "run_id": answer.get("run_id")}
        finally:
            about |= {"started_at": started, "duration_ms": round((time.monotonic() - clock) * 1000)}
            await self._tell(name, ask, about)
        structured: Json = {"ok": True, **answer}
        block = {"type": "text", "text": json.dumps(structured, ensure_ascii=False, separators=(",", ":"))}
        return {"content": [block], "structuredContent": structured, "isError": False}

    async def _carry_out(self, name: str, ask: Ask) -> Json:
        tool = self._handlers.get(name)
        if tool is None:
            raise Fault(Kind.NOT_FOUND, "There is no such tool.", code="INVALID_INPUT")
        try:
            return await tool(ask)
        except Fault:
            raise
        except Exception as exc:
            # The contract wants the class of the cause in every INTERNAL, and only we know it.
            log.exception("%s failed", name, extra={"correlation_id": self._home.current_call().correlation_id})
            raise internal(exc) from exc

    async def _tell(self, name: str, ask: Ask, about: Json) -> None:
        """To the tenant's outbox, or to the run's with a line in its journal when the call was to change it."""
        folder = self._home.folder(ask.caller)
        try:
            run = await self._shelf.known(ask.caller, str(about.get("run_id")))
        except Fault:
            about.pop("run_id", None)
            await self._telemetry.tool(folder, name, ask.span, about)
            return
        if name not in _QUIET:
            kind = "MCP_TOOL_FINISHED" if about.get("status") == "success" else "MCP_TOOL_FAILED"
            payload = {key: about[key] for key in ("tool", "correlation_id", "error", "duration_ms") if key in about}
            await asyncio.to_thread(run.record, [News(kind, payload, ask.span)])
        await self._telemetry.tool(run.folder, name, ask.span, about)


class _Steps:
    """Progress to a client that asked for it: one more with every step."""

    def __init__(self, ctx: ServerRequestContext[Any]) -> None:
        self._ctx = ctx
        self._count = 0

    async def __call__(self, message: str) -> None:
        self._count += 1
        await self._ctx.session.report_progress(self._count, None, message)


def _span(here: CurrentCall) -> Span:
    """The call's own, so that what the journal names is found in the trace, and the other way round."""
    return Span() if here.position is None else Span.at(here.position)
