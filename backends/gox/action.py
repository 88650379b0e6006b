"""Actions: one function each, run inside a record and answered in the envelope `{runId, output, diff}`."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

from backends.gox import runlog
from gateway.contract import Home, Json
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

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclass(frozen=True, slots=True)
class Request:
    """What an action is asked: its arguments, and the metadata that the contract gives to every action."""

    arguments: Json
    actor: str | None
    correlation_id: str
    dry_run: bool
    approved: bool


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


def action_server(home: Home, name: str, actions: Sequence[Action]) -> Server[Any]:
    """A server whose tools are these actions, listed by name."""
    by_name = {action.name: action for action in sorted(actions, key=lambda action: action.name)}
    tools = [_tool(action) for action in by_name.values()]

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Json:
        action = by_name.get(params.name)
        if action is None:
            raise Fault(Kind.NOT_FOUND, f"action {params.name!r} is not registered")
        return await _run(home, action, params.arguments or {})

    server = Server[Any](name, on_list_tools=list_tools)
    # Registered by hand: the handler answers a plain object, which the constructor's type does not admit.
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    return server


async def _run(home: Home, action: Action, arguments: Json) -> Json:
    here = home.here()
    request = Request(
        arguments,
        actor=_text(here.meta.get("actor")),
        correlation_id=here.correlation_id,
        dry_run=_flag(here.meta.get("dryRun")),
        approved=_flag(here.meta.get("approved")),
    )
    store, run_id = home.store(here.caller), runlog.new_run_id()
    await runlog.start(store, run_id, here.correlation_id, "action", f"{home.namespace}.{action.name}")
    try:
        output = await action.run(request)
    except Fault as fault:
        await runlog.end(store, run_id, "failed", error_code=WORDS[fault.kind], error_message=fault.message)
        raise
    summary = output.get("diffSummary") or ""
    await runlog.end(store, run_id, "succeeded", summary)
    return envelope(run_id, output, summary)


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


def _flag(word: object) -> bool:
    return word is True or (isinstance(word, str) and word in _TRUE)


def _text(word: object) -> str | None:
    return word if isinstance(word, str) else None
