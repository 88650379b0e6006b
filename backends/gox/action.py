"""Actions of the Gox contract: each call is recorded in the run log and returns `{runId, output, diff}`.

The backends `core`, `project` and `roblox` build their servers with `action_server`.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)

from backends.gox import registry, runlog
from backends.gox.idempotency import IdempotentCalls, bridge_key
from gateway.contract import Caller, Host, Json, read_flag
from gateway.errors import Fault, Kind

MIGRATIONS: Final = Path(__file__).parent / "migrations"

ERROR_CODES: Final[Mapping[Kind, str]] = {
    Kind.INVALID_INPUT: "VALIDATION_ERROR",
    Kind.TOO_LARGE: "VALIDATION_ERROR",
    Kind.NOT_FOUND: "NOT_FOUND",
    Kind.DENIED: "ACCESS_DENIED",
    Kind.APPROVAL_REQUIRED: "ACCESS_DENIED",
    Kind.ILLEGAL_STATE: "ACCESS_DENIED",
    Kind.RATE_LIMITED: "ACCESS_DENIED",
    Kind.UNSUPPORTED: "UNIMPLEMENTED",
    Kind.UNAVAILABLE: "INTERNAL_ERROR",
    Kind.TIMEOUT: "INTERNAL_ERROR",
    Kind.CANCELLED: "INTERNAL_ERROR",
    Kind.INTERNAL: "INTERNAL_ERROR",
}
"""The error code of the Gox contract for each kind of fault."""

MAX_RECORD_AGE: Final = 3 * 24 * 3600.0
"""Seconds that the record of a finished run is kept."""
CLEANUP_INTERVAL: Final = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of an action call and the request metadata of the contract."""

    arguments: Json
    actor: str | None
    correlation_id: str
    dry_run: bool
    approved: bool
    idempotency_key: str | None = None
    """The caller's idempotency key, hashed with principal and tool so that it is unique; set for writes only."""


@dataclass(frozen=True, slots=True)
class Action:
    """One tool of a Gox backend."""

    name: str
    title: str
    description: str
    side_effect: Literal["none", "read", "write"]
    run: Callable[[Request], Awaitable[Json]]
    """Returns the output; its `diffSummary`, if any, becomes the diff of the envelope."""
    input_schema: Json
    output_schema: Json
    requires_bridge: bool = False
    validate: Callable[[Json], None] | None = None
    """Raises `Fault(INVALID_INPUT)` for arguments that the schema allows; such a call leaves no record."""

    @property
    def effect(self) -> int:
        return 2 if self.side_effect == "write" else 0


def action_server(
    host: Host,
    name: str,
    actions: Sequence[Action],
    studios: Callable[[Caller], list[Json]] | None = None,
    instructions: str | None = None,
) -> Server[Any]:
    """Build a server whose tools are these actions, sorted by name."""
    by_name = {action.name: action for action in sorted(actions, key=lambda action: action.name)}
    tools = [_tool(action) for action in by_name.values()]
    runs = _ActionRunner(host)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        action = by_name.get(params.name)
        if action is None:
            raise Fault(Kind.NOT_FOUND, f"action {params.name!r} is not registered")
        return await runs.run(action, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        async with registry.register(host, registry.Member(host.namespace, frozenset(by_name), studios)):
            yield

    server = Server[Any](name, on_list_tools=list_tools, lifespan=lifespan, instructions=instructions)
    # The handler returns a plain object, which the type of the `Server` constructor does not allow.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    return server


class _ActionRunner:
    """Runs actions, writes a run-log record for each, and periodically cleans up the run log."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._idempotent = IdempotentCalls.create(host)
        self._next_cleanup: dict[str, float] = {}

    async def run(self, action: Action, arguments: Json) -> Json:
        if action.validate is not None:
            action.validate(arguments)
        meta = self._host.current_call().meta
        key = meta.get("idempotencyKey") if action.side_effect == "write" else None
        tool = f"{self._host.namespace}.{action.name}"
        dry_run = read_flag(meta, "dryRun")
        # A dry run must not share an idempotency entry with the real call, although their arguments are equal.
        identity = {"arguments": arguments, "dryRun": dry_run}
        return await self._idempotent(
            tool, key, identity, lambda: self._run_with_record(action, tool, arguments, dry_run, key)
        )

    async def _run_with_record(self, action: Action, tool: str, arguments: Json, dry_run: bool, key: object) -> Json:
        current = self._host.current_call()
        request = Request(
            arguments,
            actor=text_or_none(current.meta.get("actor")),
            correlation_id=current.correlation_id,
            dry_run=dry_run,
            approved=read_flag(current.meta, "approved"),
            idempotency_key=bridge_key(current.caller, tool, key) if isinstance(key, str) else None,
        )
        store, run_id = self._host.store(current.caller), runlog.new_run_id()
        await self._clean_up(current.caller)
        record = runlog.NewRun(
            run_id=run_id,
            correlation_id=current.correlation_id,
            type="action",
            name=tool,
            worker=self._host.bus.worker,
            principal=current.caller.principal,
            actor=request.actor,
        )
        await runlog.start(store, record)
        # This default applies to an unexpected exception.
        end: tuple[str, str, str | None, str | None] = ("failed", "", "INTERNAL_ERROR", "The action did not end.")
        try:
            output = await action.run(request)
            end = ("succeeded", output.get("diffSummary") or "", None, None)
        except Fault as fault:
            end = ("failed", "", fault.code or ERROR_CODES[fault.kind], fault.message)
            raise
        except asyncio.CancelledError:
            end = ("canceled", "", ERROR_CODES[Kind.CANCELLED], "The call was cancelled or ran out of time.")
            raise
        finally:
            await asyncio.shield(runlog.end(store, run_id, *end))
        return envelope(run_id, output, end[1])

    async def _clean_up(self, caller: Caller) -> None:
        """Fail the runs of dead workers and delete old records, at most once per `CLEANUP_INTERVAL` and tenant."""
        due = self._next_cleanup.get(caller.tenant, 0.0)
        if time.monotonic() < due:
            return
        self._next_cleanup[caller.tenant] = time.monotonic() + CLEANUP_INTERVAL
        store = self._host.store(caller)
        await registry.fail_orphaned_runs(self._host, store)
        await runlog.prune(store, MAX_RECORD_AGE)


def envelope(run_id: str, output: Json, summary: str) -> Json:
    """Build the result of a `tools/call`: the envelope as structured content and as text."""
    diff: Json | None = {"summary": summary, "entries": []} if summary else None
    structured: Json = {"runId": run_id, "output": output, "diff": diff}
    block = {"type": "text", "text": json.dumps(structured, ensure_ascii=False, separators=(",", ":"))}
    return {"content": [block], "structuredContent": structured, "isError": False}


def _tool(action: Action) -> Tool:
    return Tool(
        name=action.name,
        title=action.title,
        description=action.description,
        input_schema=action.input_schema,
        output_schema=envelope_schema(action.output_schema),
        annotations=ToolAnnotations(read_only_hint=action.side_effect != "write"),
        _meta={
            "gox:version": "v1",
            "gox:sideEffectLevel": action.side_effect,
            "gox:supportsDryRun": True,
            "gox:requiresBridge": action.requires_bridge,
        },
    )


def envelope_schema(output: Json) -> Json:
    diff: Json = {
        "type": ["object", "null"],
        "properties": {"summary": {"type": "string"}, "entries": {"type": "array", "items": {"type": "string"}}},
        "required": ["summary", "entries"],
    }
    return {
        "type": "object",
        "properties": {"runId": {"type": "string"}, "output": output, "diff": diff},
        "required": ["runId", "output", "diff"],
    }


def closed_schema(properties: Json, required: Sequence[str] = (), **keywords: Any) -> Json:
    """Build an object schema that allows only the listed properties."""
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return {**schema, **keywords}


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
