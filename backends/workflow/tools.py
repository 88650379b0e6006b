"""The five workflow tools: run, status, cancel, list and logs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import Tool, ToolAnnotations

from backends.gox.idempotency import IdempotentCalls
from backends.workflow import history, logs, outputs, run_store, schemas
from backends.workflow.recovery import Recovery
from backends.workflow.run_store import Control, Run
from backends.workflow.runner import Runner
from gateway.contract import Host, Json, Store, read_flag
from gateway.errors import Fault, Kind

_DEFAULT_PAGE: Final = 20

Progress = Callable[[float, float, str], Awaitable[None]]
Handler = Callable[[Json, Progress], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class _ToolSpec:
    title: str
    description: str
    input_schema: Json
    output_schema: Json
    read_only: bool


_TOOLS: Final[Mapping[str, _ToolSpec]] = {
    "cancel": _ToolSpec("Cancel a workflow run", "Stop a run.", schemas.CANCEL, schemas.CANCELED, read_only=False),
    "list": _ToolSpec("List workflow runs", "List runs, newest first.", schemas.LIST, schemas.RUNS, read_only=True),
    "logs": _ToolSpec(
        "Read a workflow run's log", "Return the log lines of a run.", schemas.LOGS, schemas.LINES, read_only=True
    ),
    "run": _ToolSpec(
        "Run a workflow",
        "Start a workflow: a sequence of tool calls. It runs in the background; poll workflow.status for the result.",
        schemas.RUN,
        schemas.SNAPSHOT,
        read_only=False,
    ),
    "status": _ToolSpec(
        "Status of a workflow run", "Return the status of a run.", schemas.STATUS, schemas.SNAPSHOT, read_only=True
    ),
}


def tool_definitions() -> list[Tool]:
    """Return the tool definitions, sorted by name."""
    return [
        Tool(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=ToolAnnotations(read_only_hint=tool.read_only),
            _meta={"gox:type": "workflow"},
        )
        for name, tool in _TOOLS.items()
    ]


class WorkflowTools:
    """Handlers of the workflow tools."""

    def __init__(self, host: Host, runner: Runner, recovery: Recovery) -> None:
        self._host = host
        self._runner = runner
        self._recovery = recovery
        self._idempotent = IdempotentCalls.create(host)
        self._handlers: dict[str, Handler] = {
            "cancel": self._cancel,
            "list": self._list,
            "logs": self._logs,
            "run": self._run,
            "status": self._status,
        }

    async def call(self, ctx: ServerRequestContext[Any], name: str, arguments: Json) -> Json:
        handler = self._handlers.get(name)
        if handler is None:
            raise Fault(Kind.NOT_FOUND, f"tool {name!r} is not registered")
        await self._recovery.ensure_recovered(self._host.current_call().caller.tenant)
        structured = await handler(arguments, ctx.session.report_progress)
        block = {"type": "text", "text": json.dumps(structured, ensure_ascii=False, separators=(",", ":"))}
        return {"content": [block], "structuredContent": structured, "isError": False}

    async def _run(self, arguments: Json, progress: Progress) -> Json:
        current = self._host.current_call()
        control = Control(
            current.caller,
            actor=arguments.get("actor"),
            dry_run=arguments.get("dryRun", False) or read_flag(current.meta, "dryRun"),
            approved=arguments.get("approved", False) or read_flag(current.meta, "approved"),
            traceparent=current.position.traceparent if current.position is not None else None,
        )
        correlation_id = arguments.get("correlationId") or current.correlation_id

        async def start() -> Json:
            return {"runId": await self._runner.start(arguments["definition"], correlation_id, control)}

        started = await self._idempotent(
            f"{self._host.namespace}.run", current.meta.get("idempotencyKey"), arguments, start
        )
        await self._wait(started["runId"], arguments, progress)
        return await self._snapshot(started["runId"])

    async def _status(self, arguments: Json, progress: Progress) -> Json:
        await self._wait(arguments["runId"], arguments, progress)
        snapshot = await self._snapshot(arguments["runId"])
        if arguments.get("includeOutputs"):
            snapshot["outputs"] = await outputs.read(self._store(), arguments["runId"], outputs.MAX_SHOWN)
        return snapshot

    async def _cancel(self, arguments: Json, progress: Progress) -> Json:
        run_id, run = arguments["runId"], await self._find(arguments["runId"])
        acknowledged = run is not None and await self._runner.cancel(self._store(), run)
        return {**await self._snapshot(run_id), "acknowledged": acknowledged}

    async def _list(self, arguments: Json, progress: Progress) -> Json:
        limit = arguments.get("limit", _DEFAULT_PAGE)
        return await history.read_page(self._store(), arguments.get("status", ""), limit, arguments.get("cursor"))

    async def _logs(self, arguments: Json, progress: Progress) -> Json:
        run_id = arguments["runId"]
        if await self._find(run_id) is None:
            return {"runId": run_id, "logs": history.summary_log(await self._snapshot(run_id))}
        answer: Json = {"runId": run_id, "logs": await logs.read(self._store(), run_id, arguments)}
        if arguments.get("includeOutputs"):
            shown = await outputs.read(self._store(), run_id, outputs.MAX_SHOWN)
            answer["outputs"] = [each for each in shown if arguments.get("stepId", each["stepId"]) == each["stepId"]]
        return answer

    async def _wait(self, run_id: str, arguments: Json, progress: Progress) -> None:
        """Wait until the run ends or `waitMs` has passed. Returns at once for a run of another worker."""
        active = self._runner.active_run(run_id)
        if active is None or not arguments.get("waitMs") or await self._find(run_id) is None:
            return
        deadline = asyncio.get_running_loop().time() + arguments["waitMs"] / 1000
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                while not active.ended:
                    changed = active.changed
                    await progress(active.completed, active.run.total_steps, f"{active.completed} steps completed")
                    await changed.wait()
        except TimeoutError:
            if not scope.expired():
                raise

    async def _snapshot(self, run_id: str) -> Json:
        run = await self._find(run_id)
        snapshot = run.snapshot() if run is not None else await history.find_record(self._store(), run_id)
        if snapshot is None:
            raise Fault(Kind.NOT_FOUND, f"workflow run {run_id!r} not found", details={"runId": run_id})
        return snapshot

    async def _find(self, run_id: str) -> Run | None:
        return await run_store.find(self._store(), run_id)

    def _store(self) -> Store:
        return self._host.store(self._host.current_call().caller)
