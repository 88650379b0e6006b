"""The MCP server of the launch tools: dispatches calls, wraps results in one envelope and records telemetry."""

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
from backends.launch.errors import CODES, internal
from backends.launch.events import NewEvent, Span, now
from backends.launch.model_clients import SamplingClient
from backends.launch.outbound import OutboundClients
from backends.launch.publishing import Publisher
from backends.launch.run_scheduler import RunScheduler
from backends.launch.run_store import RunStore
from backends.launch.run_tools import RunTools
from backends.launch.start_tools import StartTools
from backends.launch.telemetry import Telemetry
from backends.launch.tool_call import ToolCall
from backends.launch.tools import tools
from gateway.contract import CurrentCall, Host, Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

Handler = Callable[[ToolCall], Awaitable[Json]]

_INSTRUCTIONS: Final = (
    "Start a run, then poll its status until it is READY_FOR_PR (open the pull request) or VALIDATING (fix the next"
    " issue, repeatedly). A failed gate is reported in validation_report.ok, not as an error."
)
_READ_ONLY_TOOLS: Final = frozenset(
    {"launch_get_status", "launch_get_artifact", "launch_list_runs", "get_run_telemetry"}
)


def launch_server(host: Host) -> Server[Any]:
    outbound = OutboundClients(host)
    telemetry = Telemetry(host, outbound)
    run_store, scheduler = RunStore(host), RunScheduler(host, telemetry, outbound)
    run_tools = RunTools(host, run_store, scheduler, Publisher(host, outbound))
    dispatcher = _ToolDispatcher(
        host,
        run_store,
        telemetry,
        {**_start_handlers(StartTools(host, run_store, scheduler, outbound)), **_run_handlers(run_tools)},
    )
    listed = tools()

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        return await dispatcher.call(ctx, params.name, params.arguments or {})

    async def read_resource(ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> Json:
        return await resources.read(run_store, host.current_call().caller, str(params.uri))

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await outbound.close()

    server = Server[Any](
        "launch",
        instructions=_INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_list_resources=resources.list_resources,
        on_list_resource_templates=resources.list_templates,
    )
    # Registered separately: these handlers return plain objects, which the constructor's types do not accept.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read_resource)
    return server


def _start_handlers(start_tools: StartTools) -> dict[str, Handler]:
    return {
        "launch_start_run": start_tools.start_run,
        "launch_start_run_from_product_url": start_tools.start_from_product_url,
        "launch_start_run_from_url": start_tools.start_from_product_url,
        "launch_start_run_from_github_repo_url": start_tools.start_from_github,
    }


def _run_handlers(run_tools: RunTools) -> dict[str, Handler]:
    return {
        "launch_get_status": run_tools.get_status,
        "launch_get_artifact": run_tools.get_artifact,
        "launch_validate": run_tools.validate,
        "launch_fix_next": run_tools.fix_next,
        "launch_resume": run_tools.resume,
        "launch_cancel": run_tools.cancel,
        "launch_open_pr": run_tools.open_pr,
        "launch_list_runs": run_tools.list_runs,
        "get_run_telemetry": run_tools.get_telemetry,
    }


class _ToolDispatcher:
    """Calls the handler of a tool and records the call in telemetry and in the run's journal."""

    def __init__(self, host: Host, run_store: RunStore, telemetry: Telemetry, handlers: dict[str, Handler]) -> None:
        self._host = host
        self._run_store = run_store
        self._telemetry = telemetry
        self._handlers = handlers

    async def call(self, ctx: ServerRequestContext[Any], name: str, arguments: Json) -> Json:
        current = self._host.current_call()
        call = ToolCall(current.caller, arguments, _span(current), _ProgressReporter(ctx), SamplingClient(ctx.session))
        started, clock = now(), time.monotonic()
        fields: Json = {"tool": name, "arguments": sorted(arguments), "correlation_id": current.correlation_id}
        try:
            result = await self._dispatch(name, call)
        except Fault as fault:
            fields |= {"status": "failure", "error": fault.code or CODES.get(fault.kind, fault.kind.upper())}
            fields["run_id"] = fault.details.get("run_id", arguments.get("run_id"))
            raise
        else:
            fields |= {"status": "success", "run_id": result.get("run_id")}
        finally:
            fields |= {"started_at": started, "duration_ms": round((time.monotonic() - clock) * 1000)}
            await self._record_call(name, call, fields)
        structured: Json = {"ok": True, **result}
        block = {"type": "text", "text": json.dumps(structured, ensure_ascii=False, separators=(",", ":"))}
        return {"content": [block], "structuredContent": structured, "isError": False}

    async def _dispatch(self, name: str, call: ToolCall) -> Json:
        tool = self._handlers.get(name)
        if tool is None:
            raise Fault(Kind.NOT_FOUND, "There is no such tool.", code="INVALID_INPUT")
        try:
            return await tool(call)
        except Fault:
            raise
        except Exception as exc:
            # The contract requires the class of the cause in every INTERNAL error; it is known only here.
            log.exception(
                "launch tool %s: unexpected error",
                name,
                extra={"correlation_id": self._host.current_call().correlation_id},
            )
            raise internal(exc) from exc

    async def _record_call(self, name: str, call: ToolCall, fields: Json) -> None:
        """Record the call in the run's outbox, or in the tenant's outbox if it names no known run.

        A call of a tool that changes the run is also recorded in the run's journal.
        """
        folder = self._host.folder(call.caller)
        try:
            run = await self._run_store.get(call.caller, str(fields.get("run_id")))
        except Fault:
            fields.pop("run_id", None)
            await self._telemetry.record_tool_call(folder, name, call.span, fields)
            return
        if name not in _READ_ONLY_TOOLS:
            kind = "MCP_TOOL_FINISHED" if fields.get("status") == "success" else "MCP_TOOL_FAILED"
            payload = {key: fields[key] for key in ("tool", "correlation_id", "error", "duration_ms") if key in fields}
            await asyncio.to_thread(run.record, [NewEvent(kind, payload, call.span)])
        await self._telemetry.record_tool_call(run.folder, name, call.span, fields)


class _ProgressReporter:
    """Sends MCP progress notifications with an increasing count."""

    def __init__(self, ctx: ServerRequestContext[Any]) -> None:
        self._ctx = ctx
        self._count = 0

    async def __call__(self, message: str) -> None:
        self._count += 1
        await self._ctx.session.report_progress(self._count, None, message)


def _span(current: CurrentCall) -> Span:
    """Return the span of the call, so that journal and trace share the same ids."""
    return Span() if current.position is None else Span.from_position(current.position)
