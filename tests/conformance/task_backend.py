"""An MCP server with the tools and the tasks that the suite's `tasks-*` scenarios expect, of 2026-07-28.

`python -m tests.conformance.task_backend PORT` serves it; `module: tests.conformance.task_backend` loads it.
"""

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import uvicorn
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
    Tool,
)
from pydantic import Field

from tests.conformance.sdk_server import SingleEraApp

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
EXTENSION: Final = "io.modelcontextprotocol/tasks"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
HEADER_MISMATCH: Final = -32020
TTL_MS: Final = 600_000


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


@dataclass
class Task:
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    status: str = "working"
    created: str = field(default_factory=lambda: _now())
    updated: str = field(default_factory=lambda: _now())
    result: Json | None = None
    error: Json | None = None
    requests: Json = field(default_factory=dict[str, Any])
    answers: Json = field(default_factory=dict[str, Any])
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    job: "asyncio.Task[None] | None" = None

    def describe(self) -> Json:
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TTL_MS,
            "pollIntervalMs": 200,
        }

    def change(self, status: str) -> None:
        if self.status not in ("completed", "failed", "cancelled"):
            self.status, self.updated = status, _now()

    async def ask(self, requests: Json) -> Json:
        self.requests = requests
        self.change("input_required")
        await self.answered.wait()
        return self.answers


Work = Callable[[Task, Json], Awaitable[Json]]


async def _greet(task: Task, arguments: Json) -> Json:
    return _text(f"Hello, {arguments.get('name', 'World')}!")


async def _slow_compute(task: Task, arguments: Json) -> Json:
    await asyncio.sleep(arguments.get("seconds", 0))
    return _text(f"computed {arguments.get('label', '')}")


async def _failing_job(task: Task, arguments: Json) -> Json:
    await asyncio.sleep(0.3)
    return {**_text("This job always fails."), "isError": True}


async def _protocol_error_job(task: Task, arguments: Json) -> Json:
    await asyncio.sleep(0.1)
    raise MCPError(-32603, "The job crashed.")


async def _confirm_delete(task: Task, arguments: Json) -> Json:
    answers = await task.ask({"confirm": _form(f"Delete {arguments.get('filename')}?", "confirm", "boolean")})
    return _text(f"confirmed: {answers}")


async def _multi_input(task: Task, arguments: Json) -> Json:
    answers = await task.ask({"first": _form("First?", "name", "string"), "second": _form("Second?", "name", "string")})
    return _text(f"answered: {sorted(answers)}")


async def _with_task(task: Task, arguments: Json) -> Json:
    await asyncio.sleep(0.2)
    return _text(f"Hello {arguments['user_name']}")


TOOLS: Final[dict[str, tuple[Work, str, Json]]] = {
    "greet": (_greet, "forbidden", {"name": {"type": "string"}}),
    "slow_compute": (_slow_compute, "optional", {"seconds": {"type": "number"}, "label": {"type": "string"}}),
    "failing_job": (_failing_job, "required", {}),
    "protocol_error_job": (_protocol_error_job, "optional", {}),
    "confirm_delete": (_confirm_delete, "required", {"filename": {"type": "string"}}),
    "multi_input": (_multi_input, "required", {}),
    "test_tool_with_task": (_with_task, "required", {}),
}
"""What each tool does, whether it needs a task, and its arguments."""


class TaskBackend:
    """The handlers of the server."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    async def list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        schema: Json = {"type": "object"}
        return ListToolsResult(
            tools=[
                Tool(name=name, description=f"{name}.", input_schema={**schema, "properties": properties})
                for name, (_, _, properties) in TOOLS.items()
            ]
        )

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> Any:
        if params.name not in TOOLS:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        work, support, _ = TOOLS[params.name]
        arguments = dict(params.arguments or {})
        if support == "required" and not _can_use_tasks(ctx):
            raise _missing_extension()
        if params.name == "test_tool_with_task":
            answer = (params.input_responses or {}).get("user_name")
            if answer is None:
                requests = {"user_name": _form("What is your name?", "name", "string")}
                return {"resultType": "input_required", "inputRequests": requests, "requestState": "asked"}
            answered = answer if isinstance(answer, dict) else answer.model_dump(by_alias=True)
            arguments["user_name"] = (answered.get("content") or {}).get("name")
        if support == "forbidden" or not _can_use_tasks(ctx):
            return {"resultType": "complete", **await work(Task(), arguments)}
        task = Task()
        self._tasks[task.id] = task
        task.job = asyncio.create_task(self._run(task, work, arguments))
        return {"resultType": "task", **task.describe()}

    async def _run(self, task: Task, work: Work, arguments: Json) -> None:
        try:
            task.result = await work(task, arguments)
            task.change("completed")
        except MCPError as exc:
            task.error = {"code": exc.error.code, "message": exc.error.message}
            task.change("failed")

    async def get(self, ctx: Context, params: TaskParams) -> Json:
        task = self._find(ctx, params)
        shown: Json = {"resultType": "complete", **task.describe()}
        if task.status == "completed":
            shown["result"] = task.result
        elif task.status == "failed":
            shown["error"] = task.error
        elif task.status == "input_required":
            shown["inputRequests"] = {key: each for key, each in task.requests.items() if key not in task.answers}
        return shown

    async def update(self, ctx: Context, params: UpdateParams) -> Json:
        task = self._find(ctx, params)
        task.answers |= {key: each for key, each in params.input_responses.items() if key in task.requests}
        if task.requests and task.requests.keys() <= task.answers.keys():
            task.change("working")
            task.answered.set()
        return {"resultType": "complete"}

    async def cancel(self, ctx: Context, params: TaskParams) -> Json:
        task = self._find(ctx, params)
        task.change("cancelled")
        if task.job is not None:
            task.job.cancel()
        return {"resultType": "complete"}

    def _find(self, ctx: Context, params: TaskParams) -> Task:
        if ctx.request is not None and ctx.request.headers.get("mcp-name") != params.task_id:
            raise MCPError(HEADER_MISMATCH, "mcp-name header does not match params.taskId")
        if not _can_use_tasks(ctx):
            raise _missing_extension()
        task = self._tasks.get(params.task_id)
        if task is None:
            raise MCPError(INVALID_PARAMS, "Unknown task")
        return task


def build() -> Server[Any]:
    backend = TaskBackend()
    built = Server[Any](
        "task-fixture",
        version="1.0.0",
        get_tool_input_schema=lambda name: {"type": "object"},
        on_list_tools=backend.list_tools,
        on_call_tool=backend.call_tool,
    )
    built.add_request_handler("tasks/get", TaskParams, backend.get)
    built.add_request_handler("tasks/update", UpdateParams, backend.update)
    built.add_request_handler("tasks/cancel", TaskParams, backend.cancel)
    built.extensions[EXTENSION] = {}
    return built


def server(host: Any) -> Server[Any]:
    return build()


def _can_use_tasks(ctx: Context) -> bool:
    capabilities = (ctx.meta or {}).get(CAPABILITIES) or {}
    return EXTENSION in (capabilities.get("extensions") or {})


def _missing_extension() -> MCPError:
    data = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "The client did not declare the tasks extension.", data)


def _form(message: str, member: str, kind: str) -> Json:
    schema = {"type": "object", "properties": {member: {"type": kind}}, "required": [member]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def _text(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    app = SingleEraApp(build().streamable_http_app(), "modern")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), http="h11", log_level="warning")
