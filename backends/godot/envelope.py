"""The response envelope of every tool call, for success and failure, and the seven error codes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.contract import Json
from gateway.errors import Kind

SCHEMA: Final = "E_SCHEMA_VALIDATION"
NOT_CONNECTED: Final = "E_NOT_CONNECTED"
NOT_FOUND: Final = "E_NOT_FOUND"
PERMISSION: Final = "E_PERMISSION_DENIED"
TIMEOUT: Final = "E_TIMEOUT"
UNSUPPORTED: Final = "E_UNSUPPORTED"
INTERNAL: Final = "E_INTERNAL"

CODES: Final[Mapping[Kind, str]] = {
    Kind.INVALID_INPUT: SCHEMA,
    Kind.TOO_LARGE: SCHEMA,
    Kind.UNAUTHENTICATED: PERMISSION,
    Kind.DENIED: PERMISSION,
    Kind.APPROVAL_REQUIRED: PERMISSION,
    Kind.NOT_FOUND: NOT_FOUND,
    Kind.ILLEGAL_STATE: UNSUPPORTED,
    Kind.RATE_LIMITED: PERMISSION,
    Kind.UNSUPPORTED: UNSUPPORTED,
    Kind.UNAVAILABLE: NOT_CONNECTED,
    Kind.TIMEOUT: TIMEOUT,
    Kind.CANCELLED: INTERNAL,
    Kind.INTERNAL: INTERNAL,
}

_SUGGESTED_FIXES: Final[Mapping[str, str]] = {
    SCHEMA: "Call meta_tool_manager with action tool_help to see the arguments of this tool.",
    NOT_CONNECTED: "Open the project in an editor whose Gatehouse plugin is connected, or pass projectPath and"
    " scenePath to run the call without an editor.",
    NOT_FOUND: "List what exists first: list_projects, list_scenes, get_node_tree, list_scripts, list_resources.",
    PERMISSION: "Use a path inside the project, or ask your operator to allow this.",
    TIMEOUT: "Try again; if it happens again, look for an endless loop in the project's scripts.",
    UNSUPPORTED: "Use a tool that does not need the missing component; godot_preflight lists what is available.",
    INTERNAL: "Check get_debug_output and the project's .godot_mcp/audit.log for this correlation id.",
}

DURATION_KEY: Final = "durationMs"
"""Key in a fault's details with the duration of the call; `render_error` moves it to `meta`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a handler: the parts of the envelope that the tool itself provides."""

    summary: str
    details: Json = field(default_factory=dict[str, Any])
    logs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[Json, ...] = ()
    execution: Json = field(default_factory=dict[str, Any])
    images: tuple[str, ...] = ()
    """PNG files in base64, which the answer has as image content."""


def render_success(outcome: Outcome, meta: Json) -> Json:
    """Return the `tools/call` result of a successful call."""
    envelope: Json = {
        "ok": True,
        "summary": outcome.summary,
        "result": outcome.details,
        "error": None,
        "meta": meta,
        "details": outcome.details,
    }
    for key in ("logs", "warnings", "files"):
        if value := getattr(outcome, key):
            envelope[key] = list(value)
    if outcome.execution:
        envelope["execution"] = outcome.execution
    text = json.dumps(envelope, ensure_ascii=False, indent=1)
    content: list[Json] = [{"type": "text", "text": text}]
    content += [{"type": "image", "data": image, "mimeType": "image/png"} for image in outcome.images]
    return {"content": content, "structuredContent": envelope, "isError": False}


def build_meta(tool: str, action: str | None, correlation_id: str, duration_ms: int) -> Json:
    """Return the `meta` object of the envelope."""
    return {"tool": tool, "action": action, "correlationId": correlation_id, DURATION_KEY: duration_ms}


def render_error(error: Json, tool: str, arguments: Json) -> Json:
    """Return the envelope of a failed call, whether the gateway or this backend raised the error."""
    details = {key: value for key, value in error["details"].items() if key != DURATION_KEY}
    shown = {key: value for key, value in error.items() if key not in ("suggested_fix", "details")}
    shown["suggestedFix"] = error.get("suggested_fix") or _SUGGESTED_FIXES.get(
        error["code"], _SUGGESTED_FIXES[INTERNAL]
    )
    if details:
        shown["details"] = details
    action = arguments.get("action")
    duration = error["details"].get(DURATION_KEY, 0)
    # The outcome of each part of a batch is also where a successful batch has it.
    parts: Json = {"details": details} if "results" in details else {}
    return {
        **parts,
        "ok": False,
        "summary": error["message"],
        "result": None,
        "error": shown,
        "errors": [{"code": error["code"], "message": error["message"]}],
        "meta": build_meta(tool, action if isinstance(action, str) else None, error["correlation_id"], duration),
    }


OUTPUT_SCHEMA: Final[Json] = {
    # Every tool of the list carries it, so it says only what a client relies on.
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "summary": {"type": "string"},
        "result": {"type": ["object", "null"]},
        "error": {
            "type": ["object", "null"],
            "required": ["code", "message", "retryable"],
        },
        "meta": {"type": "object", "required": ["tool", "action", "correlationId", "durationMs"]},
    },
    "required": ["ok", "summary", "result", "error", "meta"],
}
