"""The five workflow tools."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import Tool, ToolAnnotations

from backends.gox.idempotency import Once
from backends.workflow import history, logs, run_store, schemas
from backends.workflow.recovery import Recovery
from backends.workflow.run_store import Control, Run
from backends.workflow.runner import Runner
from gateway.contract import Host, Json, Store
from gateway.errors import Fault, Kind

_DEFAULT_PAGE: Final = 20

Progress = Callable[[float, float, str], Awaitable[None]]
Handler = Callable[[Json, Progress], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class _Listed:
    title: str
    description: str
    takes: Json
    gives: Json
    reads: bool


_TOOLS: Final[Mapping[str, _Listed]] = {
    "cancel": _Listed("Cancel a workflow run", "Stop a run.", schemas.CANCEL, schemas.CANCELED, reads=False),
    "list": _Listed("List workflow runs", "Runs, newest first.", schemas.LIST, schemas.RUNS, reads=True),
    "logs": _Listed("Read a workflow run's log", "What a run did.", schemas.LOGS, schemas.LINES, reads=True),
    "run": _Listed(
        "Run a workflow",
        "Begin a workflow: steps in order, each a tool that you may call. It goes on by itself; ask workflow.status.",
        schemas.RUN,
        schemas.SNAPSHOT,
        reads=False,
    ),
    "status": _Listed("Status of a workflow run", "Where a run is.", schemas.STATUS, schemas.SNAPSHOT, reads=True),
}


def listed() -> list[Tool]:
    """The tools, by name."""
    return [
        Tool(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.takes,
            output_schema=tool.gives,
            annotations=ToolAnnotations(read_only_hint=tool.reads),
            _meta={"gox:type": "workflow"},
        )
        for name, tool in _TOOLS.items()
    ]


class Tools:
    """What each tool does."""

    def __init__(self, home: Host, runner: Runner, recovery: Recovery) -> None:
        self._home = home
        self._runner = runner
        self._recovery = recovery
        self._once = Once.of(home)
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
        await self._recovery.of(self._home.current_call().caller.tenant)
        structured = await handler(arguments, ctx.session.report_progress)
        block = {"type": "text", "text": json.dumps(structured, ensure_ascii=False, separators=(",", ":"))}
        return {"content": [block], "structuredContent": structured, "isError": False}

    async def _run(self, arguments: Json, progress: Progress) -> Json:
        here = self._home.current_call()
        control = Control(
            here.caller,
            actor=arguments.get("actor"),
            dry_run=arguments.get("dryRun", False),
            approved=arguments.get("approved", False),
            traceparent=here.position.traceparent if here.position is not None else None,
        )
        correlation_id = arguments.get("correlationId") or here.correlation_id

        async def begin() -> Json:
            return {"runId": await self._runner.start(arguments["definition"], correlation_id, control)}

        begun = await self._once(f"{self._home.namespace}.run", here.meta.get("idempotencyKey"), arguments, begin)
        await self._wait(begun["runId"], arguments, progress)
        return await self._snapshot(begun["runId"])

    async def _status(self, arguments: Json, progress: Progress) -> Json:
        await self._wait(arguments["runId"], arguments, progress)
        return await self._snapshot(arguments["runId"])

    async def _cancel(self, arguments: Json, progress: Progress) -> Json:
        run_id, run = arguments["runId"], await self._find(arguments["runId"])
        acknowledged = run is not None and await self._runner.cancel(self._store(), run)
        return {**await self._snapshot(run_id), "acknowledged": acknowledged}

    async def _list(self, arguments: Json, progress: Progress) -> Json:
        limit = arguments.get("limit", _DEFAULT_PAGE)
        return await history.page(self._store(), arguments.get("status", ""), limit, arguments.get("cursor"))

    async def _logs(self, arguments: Json, progress: Progress) -> Json:
        run_id = arguments["runId"]
        if await self._find(run_id) is None:
            return {"runId": run_id, "logs": history.lines(await self._snapshot(run_id))}
        return {"runId": run_id, "logs": await logs.read(self._store(), run_id, arguments)}

    async def _wait(self, run_id: str, arguments: Json, progress: Progress) -> None:
        """Until the run ends or the time is over; a run of another worker is not waited for."""
        live = self._runner.live(run_id)
        if live is None or not arguments.get("waitMs") or await self._find(run_id) is None:
            return
        until = asyncio.get_running_loop().time() + arguments["waitMs"] / 1000
        scope = asyncio.timeout_at(until)
        try:
            async with scope:
                while not live.ended:
                    changed = live.changed
                    await progress(live.completed, live.run.total_steps, f"{live.completed} steps done")
                    await changed.wait()
        except TimeoutError:
            if not scope.expired():
                raise

    async def _snapshot(self, run_id: str) -> Json:
        run = await self._find(run_id)
        known = run.snapshot() if run is not None else await history.recall(self._store(), run_id)
        if known is None:
            raise Fault(Kind.NOT_FOUND, f"workflow run {run_id!r} not found", details={"runId": run_id})
        return known

    async def _find(self, run_id: str) -> Run | None:
        return await run_store.find(self._store(), run_id)

    def _store(self) -> Store:
        return self._home.store(self._home.current_call().caller)
