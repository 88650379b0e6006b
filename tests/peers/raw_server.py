"""A minimal MCP server of one era over HTTP that returns exactly the configured messages, field by field."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.types import Receive, Scope, Send

from tests.in_process_server import InProcessServer

Json = dict[str, Any]
Answer = Json | Callable[[Json, Json], Awaitable[Json]]
"""A result, or a function that builds one from the params and headers."""

MODERN = "2026-07-28"
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


class RpcError(Exception):
    """Raised by an answer function to return a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


@dataclass
class RawServer:
    """The configuration can be changed while the server runs. `received` holds all requests in order."""

    era: Literal["modern", "handshake"] = "modern"
    tools: list[Json] = field(default_factory=list[Json])
    resources: list[Json] = field(default_factory=list[Json])
    resourceTemplates: list[Json] = field(default_factory=list[Json])
    prompts: list[Json] = field(default_factory=list[Json])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """Answers by method."""
    notifications: list[Json] = field(default_factory=list[Json])
    """Streamed before the answer to each `tools/call`; `TOKEN` is replaced by the request's progress token."""
    instructions: str = ""
    page: int = 1000
    received: list[tuple[str, Json, Json]] = field(default_factory=list[tuple[str, Json, Json]])
    url: str = ""
    unavailable: bool = False
    """If true, the server answers every request with 503."""

    def entry(self, **more: Any) -> Json:
        return {"url": self.url, "allow_private": True, **more}

    def params_of(self, method: str) -> list[Json]:
        return [params for each, params, _ in self.received if each == method]

    @property
    def capabilities(self) -> Json:
        return {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}

    # ---- HTTP ----

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        if self.unavailable:
            await _respond(send, 503, b"")
        elif scope["method"] != "POST":
            await _respond(send, 405, b"")
        elif (headers.get("mcp-protocol-version") == MODERN) != (self.era == "modern"):
            error = {"code": -32000, "message": "Server not initialized"}
            await _respond(send, 400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
        else:
            await self._answer(json.loads(body), headers, send)

    async def _answer(self, message: Json, headers: Json, send: Send) -> None:
        method, params = message.get("method", ""), message.get("params") or {}
        self.received.append((method, params, headers))
        if "id" not in message or not method:
            await _respond(send, 202, b"")
            return
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = await self._result(method, params, headers)
        except RpcError as refusal:
            answer["error"] = refusal.error
        if method == "tools/call" and self.notifications:
            token = (params.get("_meta") or {}).get("progressToken")
            frames = [json.dumps(each).replace('"TOKEN"', json.dumps(token)) for each in self.notifications]
            stream = "".join(f"event: message\ndata: {frame}\n\n" for frame in (*frames, json.dumps(answer)))
            await _respond(send, 200, stream.encode(), b"text/event-stream")
            return
        await _respond(send, 200, json.dumps(answer).encode())

    async def _result(self, method: str, params: Json, headers: Json) -> Json:
        answer = self.answers.get(method)
        if answer is not None:
            return await answer(params, headers) if callable(answer) else answer
        if method == "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": self.capabilities,
                "serverInfo": {"name": "raw", "version": "1"},
                "instructions": self.instructions,
            }
        if method == "server/discover":
            return {
                "supportedVersions": [MODERN],
                "capabilities": self.capabilities,
                "instructions": self.instructions,
                **self._stamp(),
            }
        if method in _LISTS:
            return self._list(_LISTS[method], int(params.get("cursor") or 0))
        if method == "logging/setLevel":
            return {}
        raise RpcError(-32601, "Method not found", method)

    def _list(self, key: str, start: int) -> Json:
        items = getattr(self, key)
        page = {key: items[start : start + self.page], **self._stamp()}
        return {**page, "nextCursor": str(start + self.page)} if start + self.page < len(items) else page

    def _stamp(self) -> Json:
        if self.era != "modern":
            return {}
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@asynccontextmanager
async def raw_server(**options: Any) -> AsyncGenerator[RawServer]:
    raw = RawServer(**options)
    server = InProcessServer(uvicorn.Config(raw, host="127.0.0.1", port=0, log_level="warning", lifespan="off"))
    # Force the shutdown: do not wait for requests that a test leaves unanswered.
    async with server.running(force=True) as port:
        raw.url = f"http://127.0.0.1:{port}/mcp"
        yield raw


async def _respond(send: Send, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})
