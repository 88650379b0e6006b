"""The envelope of every answer, good or bad, and the seven codes."""

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

WORDS: Final[Mapping[Kind, str]] = {
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

_FIXES: Final[Mapping[str, str]] = {
    SCHEMA: "Call meta_tool_manager with action tool_help to see the arguments of this tool.",
    NOT_CONNECTED: "Open the project in an editor whose Gatehouse plugin is connected, or give projectPath and"
    " scenePath so that it can be done without one.",
    NOT_FOUND: "List what is there first: list_projects, list_scenes, get_node_tree, list_scripts, list_resources.",
    PERMISSION: "Use a path inside the project, or ask your operator to allow this.",
    TIMEOUT: "Try again; if it happens again, look for an endless loop in the project's scripts.",
    UNSUPPORTED: "Use a tool that works without what is missing here; godot_preflight says what there is.",
    INTERNAL: "Look at get_debug_output and at the project's .godot_mcp/audit.log under this correlation id.",
}

DURATION: Final = "durationMs"
"""Where a fault's details carry how long the call took, until `dress` moves it to `meta`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool did: the parts of the envelope that are its own to say."""

    summary: str
    details: Json = field(default_factory=dict[str, Any])
    logs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[Json, ...] = ()
    execution: Json = field(default_factory=dict[str, Any])


def answer(outcome: Outcome, meta: Json) -> Json:
    """A good result of `tools/call`."""
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
    return {"content": [{"type": "text", "text": text}], "structuredContent": envelope, "isError": False}


def meta_of(tool: str, action: str | None, correlation_id: str, duration_ms: int) -> Json:
    return {"tool": tool, "action": action, "correlationId": correlation_id, DURATION: duration_ms}


def dress(error: Json, tool: str, arguments: Json) -> Json:
    """The envelope of a failed call, whoever refused it."""
    details = {key: value for key, value in error["details"].items() if key != DURATION}
    shown = {key: value for key, value in error.items() if key not in ("suggested_fix", "details")}
    shown["suggestedFix"] = error.get("suggested_fix") or _FIXES.get(error["code"], _FIXES[INTERNAL])
    if details:
        shown["details"] = details
    action = arguments.get("action")
    took = error["details"].get(DURATION, 0)
    return {
        "ok": False,
        "summary": error["message"],
        "result": None,
        "error": shown,
        "errors": [{"code": error["code"], "message": error["message"]}],
        "meta": meta_of(tool, action if isinstance(action, str) else None, error["correlation_id"], took),
    }


_TEXTS: Final[Json] = {"type": "array", "items": {"type": "string"}}

OUTPUT_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "summary": {"type": "string"},
        "result": {"type": ["object", "null"]},
        "error": {
            "type": ["object", "null"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "object"},
                "retryable": {"type": "boolean"},
                "suggestedFix": {"type": "string"},
            },
            "required": ["code", "message", "retryable"],
        },
        "meta": {
            "type": "object",
            "properties": {
                "tool": {"type": "string"},
                "action": {"type": ["string", "null"]},
                "correlationId": {"type": "string"},
                "durationMs": {"type": "integer", "minimum": 0},
            },
            "required": ["tool", "action", "correlationId", "durationMs"],
        },
        "details": {"type": "object"},
        "logs": _TEXTS,
        "warnings": _TEXTS,
        "errors": {"type": "array", "items": {"type": "object"}},
        "execution": {"type": "object"},
        "files": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["ok", "summary", "result", "error", "meta"],
}
