"""Driving an ASGI app by hand."""

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = list[tuple[bytes, bytes]]


class Called:
    """An app that notes that it was reached."""

    def __init__(self) -> None:
        self.times = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.times += 1
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": ((b"content-length", b"0"),)})
            await send({"type": "http.response.body", "body": b""})


class Sent:
    """What an app answered."""

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


async def call(app: ASGIApp, scope: Scope) -> Sent:
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return Sent(messages)
