"""Input and output schemas of the workflow tools."""

from typing import Any, Final

from backends.gox.action import closed_schema
from backends.workflow.definition import MAX_NAME
from backends.workflow.definition import SCHEMA as DEFINITION
from gateway.contract import Json

MAX_WAIT: Final = 50_000

_WAIT: Final[Json] = {
    "type": "integer",
    "minimum": 0,
    "maximum": MAX_WAIT,
    "description": "Maximum milliseconds to wait for the run to end; progress is reported meanwhile.",
}
_RUN_ID: Final[Json] = {"type": "string", "minLength": 1}
_FLAG: Final[Json] = {"type": "boolean"}
_TEXT: Final[Json] = {"type": "string"}
_LIMIT: Final[Json] = {"type": "integer", "minimum": 1, "maximum": 1000}

RUN: Final = closed_schema(
    {
        "definition": DEFINITION,
        "actor": {"type": "string", "maxLength": MAX_NAME},
        "correlationId": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "dryRun": _FLAG,
        "approved": _FLAG,
        "waitMs": _WAIT,
    },
    required=("definition",),
)
_OUTPUTS: Final[Json] = {
    "type": "boolean",
    "description": "Include the outputs of the finished steps. gox://runs/{runId} has those that are too large here.",
}
STATUS: Final = closed_schema({"runId": _RUN_ID, "waitMs": _WAIT, "includeOutputs": _OUTPUTS}, required=("runId",))
CANCEL: Final = closed_schema({"runId": _RUN_ID}, required=("runId",))
LIST: Final = closed_schema({"status": _TEXT, "limit": _LIMIT, "cursor": _TEXT})
LOGS: Final = closed_schema(
    {
        "runId": _RUN_ID,
        "limit": _LIMIT,
        "level": _TEXT,
        "stepId": _TEXT,
        "since": _TEXT,
        "includeOutputs": _OUTPUTS,
    },
    required=("runId",),
)


def _object(properties: Json, required: tuple[str, ...], **more: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), **more}


_SNAPSHOT: Final[Json] = {
    "runId": _TEXT,
    "workflowId": _TEXT,
    "correlationId": _TEXT,
    "status": {"type": "string", "enum": ["running", "succeeded", "failed", "canceled"]},
    "startedAt": _TEXT,
    "endedAt": _TEXT,
    "totalSteps": {"type": "integer"},
    "completedSteps": {"type": "integer"},
    "cancelRequested": _FLAG,
    "outputs": {"type": "array", "items": {"type": "object"}},
    "lastError": _object({"code": _TEXT, "message": _TEXT}, ("code", "message")),
}
_REQUIRED: Final = (
    *("runId", "workflowId", "correlationId", "status", "startedAt"),
    *("totalSteps", "completedSteps", "cancelRequested"),
)
_LINE: Final = _object(
    {"timestamp": _TEXT, "level": _TEXT, "message": _TEXT, "stepId": _TEXT, "actionId": _TEXT, "mayRepeat": _FLAG},
    ("timestamp", "level", "message"),
)

SNAPSHOT: Final = _object(_SNAPSHOT, _REQUIRED)
CANCELED: Final = _object({**_SNAPSHOT, "acknowledged": _FLAG}, (*_REQUIRED, "acknowledged"))
RUNS: Final = _object({"runs": {"type": "array", "items": SNAPSHOT}, "nextCursor": _TEXT}, ("runs",))
LINES: Final = _object(
    {
        "runId": _TEXT,
        "logs": {"type": "array", "items": _LINE},
        "outputs": {"type": "array", "items": {"type": "object"}},
    },
    ("runId", "logs"),
)
