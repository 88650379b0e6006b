"""Dispatches the calls of the launch tools, wraps results in one envelope and records telemetry."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server.context import ServerRequestContext

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
from gateway.contract import CurrentCall, Host, Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

Handler = Callable[[ToolCall], Awaitable[Json]]
_READ_ONLY_TOOLS: Final = frozenset(
    {"launch_get_status", "launch_get_artifact", "launch_list_runs", "get_run_telemetry"}
)


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


class ToolDispatcher:
    """Calls the handler of a tool and records the call in telemetry and in the run's journal."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._outbound = outbound = OutboundClients(host)
        self._telemetry = Telemetry(host, outbound)
        self._run_store = run_store = RunStore(host)
        scheduler = RunScheduler(host, self._telemetry, outbound)
        self._handlers = {
            **_start_handlers(StartTools(host, run_store, scheduler, outbound)),
            **_run_handlers(RunTools(host, run_store, scheduler, Publisher(host, outbound))),
        }

    async def read_resource(self, uri: str) -> Json:
        return await resources.read(self._run_store, self._host.current_call().caller, uri)

    async def close(self) -> None:
        await self._outbound.close()

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
