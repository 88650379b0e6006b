"""Renders tasks for clients of both eras: their status, result, error and input requests."""

from datetime import UTC, datetime
from typing import Any, Final, cast

from gateway.contract import RELATED_TASK, Json
from gateway.errors import ForeignError
from gateway.state.task_rows import TaskRow
from gateway.tasks.content import TaskContent

POLL_MS: Final = 1000
PROGRESS: Final = "gatehouse/progress"
MESSAGES: Final = "gatehouse/messages"
"""`_meta` keys with the last progress notification and the last log messages of a running task."""


def describe(row: TaskRow, content: TaskContent, *, modern: bool) -> Json:
    """Describe a task without its outcome, as the revision names the members."""
    status = "working" if row.state in ("held", "queued") else row.state
    task: Json = {
        "taskId": row.public_id,
        "status": status,
        "createdAt": _iso(row.created_at),
        "lastUpdatedAt": _iso(max(row.updated_at, row.created_at)),
        "ttlMs" if modern else "ttl": None if row.ttl is None else int(row.ttl * 1000),
        "pollIntervalMs" if modern else "pollInterval": POLL_MS,
    }
    message: Any = content.open(row.id, "message", row.message)
    if isinstance(message, str):
        task["statusMessage"] = message
    return task


def created_result(row: TaskRow, content: TaskContent, *, modern: bool) -> Json:
    """The result of a `tools/call` that became a task."""
    task = describe(row, content, modern=modern)
    return {"resultType": "task", **task} if modern else {"task": task}


def detailed(row: TaskRow, content: TaskContent) -> Json:
    """The answer to `tasks/get` in 2026-07-28, which contains the outcome."""
    task = describe(row, content, modern=True)
    outcome = cast("Json", content.open(row.id, "outcome", row.outcome))
    if row.state == "completed":
        task["result"] = outcome.get("result") or {}
    elif row.state == "failed":
        task["error"] = outcome.get("error") or _LOST
    elif row.state == "input_required":
        task["inputRequests"] = content.open(row.id, "input", row.input)
    if meta := kept_notes(row, content):
        task["_meta"] = meta
    return task


def kept_notes(row: TaskRow, content: TaskContent) -> Json:
    """The kept progress and messages of a task, for `_meta`."""
    notes = cast("Json", content.open(row.id, "notes", row.notes))
    meta: Json = {}
    if progress := notes.get("progress"):
        meta[PROGRESS] = progress
    if messages := notes.get("messages"):
        meta[MESSAGES] = messages
    return meta


def final_result(row: TaskRow, content: TaskContent) -> Json:
    """The answer to `tasks/result` in 2025-11-25: the result of the call. Raises `ForeignError` for a failed one."""
    outcome = cast("Json", content.open(row.id, "outcome", row.outcome))
    result: Any = outcome.get("result")
    if result is None:
        error = outcome.get("error") or (_CANCELLED if row.state == "cancelled" else _LOST)
        raise ForeignError(error["code"], error["message"], error.get("data"))
    return with_related_task(cast("Json", result), row.public_id)


def with_related_task(message: Json, public_id: str) -> Json:
    """Return a result or request with the `_meta` that names its task."""
    return {**message, "_meta": {**(message.get("_meta") or {}), RELATED_TASK: {"taskId": public_id}}}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_LOST: Final[Json] = {"code": -32603, "message": "The outcome of this task is no longer available."}
_CANCELLED: Final[Json] = {"code": -32800, "message": "The task was cancelled."}
