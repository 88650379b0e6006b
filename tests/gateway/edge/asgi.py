"""Helpers that call an ASGI app directly."""

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]


class CountingApp:
    """An app that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": ((b"content-length", b"0"),)})
            await send({"type": "http.response.body", "body": b""})


class AsgiResponse:
    """The response of an app."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.messages[1]["body"])["error"]


def scope_of(headers: Headers, *, method: str = "POST", path: str = "/mcp", kind: str = "http") -> Scope:
    return {"type": kind, "method": method, "path": path, "headers": headers}


async def call(app: ASGIApp, scope: Scope) -> AsgiResponse:
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return AsgiResponse(messages)
