"""Actions: one function each, run inside a record and answered in the envelope `{runId, output, diff}`."""

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
from backends.gox.idempotency import Once, bridge_key
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

MIGRATIONS: Final = Path(__file__).parent / "migrations"

WORDS: Final[Mapping[Kind, str]] = {
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
"""The contract's own code for each kind of fault."""

MAX_AGE: Final = 3 * 24 * 3600.0
"""How long the record of a run that ended is kept."""
TIDY_EVERY: Final = 600.0

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclass(frozen=True, slots=True)
class Request:
    """What an action is asked: its arguments, and the metadata that the contract gives to every action."""

    arguments: Json
    actor: str | None
    correlation_id: str
    dry_run: bool
    approved: bool
    idempotency_key: str | None = None
    """The caller's own key, made nobody else's; only a write has one."""


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    title: str
    description: str
    side_effect: Literal["none", "read", "write"]
    run: Callable[[Request], Awaitable[Json]]
    """Its output; a `diffSummary` in it becomes the envelope's diff."""
    input_schema: Json
    output_schema: Json
    requires_bridge: bool = False

    @property
    def effect(self) -> int:
        return 2 if self.side_effect == "write" else 0


def action_server(
    home: Host,
    name: str,
    actions: Sequence[Action],
    studios: Callable[[Caller], list[Json]] | None = None,
    instructions: str | None = None,
) -> Server[Any]:
    """A server whose tools are these actions, listed by name."""
    by_name = {action.name: action for action in sorted(actions, key=lambda action: action.name)}
    tools = [_tool(action) for action in by_name.values()]
    runs = _Runs(home)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        action = by_name.get(params.name)
        if action is None:
            raise Fault(Kind.NOT_FOUND, f"action {params.name!r} is not registered")
        return await runs.run(action, params.arguments or {})

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
        async with registry.joined(home, registry.Part(home.namespace, frozenset(by_name), studios)):
            yield

    server = Server[Any](name, on_list_tools=list_tools, lifespan=lifespan, instructions=instructions)
    # Registered by hand: the handler answers a plain object, which the constructor's type does not admit.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    return server


class _Runs:
    """Runs actions, each inside its record; looks after the log of runs on the way."""

    def __init__(self, home: Host) -> None:
        self._home = home
        self._once = Once.of(home)
        self._tidied: dict[str, float] = {}

    async def run(self, action: Action, arguments: Json) -> Json:
        meta = self._home.current_call().meta
        key = meta.get("idempotencyKey") if action.side_effect == "write" else None
        tool = f"{self._home.namespace}.{action.name}"
        dry = flag(meta.get("dryRun"))
        # A rehearsal and the deed are not the same call, though their arguments are.
        asked = {"arguments": arguments, "dryRun": dry}
        return await self._once(tool, key, asked, lambda: self._recorded(action, tool, arguments, dry, key))

    async def _recorded(self, action: Action, tool: str, arguments: Json, dry_run: bool, key: object) -> Json:
        here = self._home.current_call()
        request = Request(
            arguments,
            actor=text_or_none(here.meta.get("actor")),
            correlation_id=here.correlation_id,
            dry_run=dry_run,
            approved=flag(here.meta.get("approved")),
            idempotency_key=bridge_key(here.caller, tool, key) if isinstance(key, str) else None,
        )
        store, run_id = self._home.store(here.caller), runlog.new_run_id()
        await self._tidy(here.caller)
        await runlog.start(store, run_id, here.correlation_id, "action", tool, self._home.bus.worker)
        # What ends the action in any other way than below is a defect, or the caller left.
        end: tuple[str, str, str | None, str | None] = ("failed", "", "INTERNAL_ERROR", "The action did not end.")
        try:
            output = await action.run(request)
            end = ("succeeded", output.get("diffSummary") or "", None, None)
        except Fault as fault:
            end = ("failed", "", fault.code or WORDS[fault.kind], fault.message)
            raise
        except asyncio.CancelledError:
            end = ("canceled", "", WORDS[Kind.CANCELLED], "The call was cancelled or ran out of time.")
            raise
        finally:
            await asyncio.shield(runlog.end(store, run_id, *end))
        return envelope(run_id, output, end[1])

    async def _tidy(self, caller: Caller) -> None:
        """Once in a while, and first of all: end what a dead worker left, forget what is old."""
        due = self._tidied.get(caller.tenant, 0.0)
        if time.monotonic() < due:
            return
        self._tidied[caller.tenant] = time.monotonic() + TIDY_EVERY
        store = self._home.store(caller)
        await registry.end_orphans(self._home, store)
        await runlog.prune(store, MAX_AGE)


def envelope(run_id: str, output: Json, summary: str) -> Json:
    """The result of a `tools/call`: the envelope, structured and as text."""
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


def closed(properties: Json, required: Sequence[str] = (), **more: Any) -> Json:
    """An input schema that admits nothing it does not name."""
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return {**schema, **more}


def flag(word: object) -> bool:
    return word is True or (isinstance(word, str) and word in _TRUE)


def text_or_none(word: object) -> str | None:
    return word if isinstance(word, str) else None
