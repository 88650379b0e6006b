"""A client of the handshake era, written by hand: it shows every field of an answer, known to anybody or not."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

Json = dict[str, Any]
VERSION = "2025-11-25"


@dataclass
class HandshakeClient:
    http: httpx.AsyncClient
    url: str
    headers: dict[str, str]
    greeting: Json = field(default_factory=dict[str, Any])

    async def send(self, method: str, params: Json | None = None) -> list[Json]:
        """Every message of the answer, in order: what was notified, then the answer itself."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        answer = await self.http.post(self.url, json=body, headers=self.headers)
        if session := answer.headers.get("mcp-session-id"):
            self.headers |= {"mcp-session-id": session, "mcp-protocol-version": VERSION}
        return messages(answer)

    async def ask(self, method: str, params: Json | None = None) -> Json:
        return (await self.send(method, params))[-1]


@asynccontextmanager
async def handshake(base: str, key: str, path: str = "/mcp", **capabilities: Json) -> AsyncGenerator[HandshakeClient]:
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(timeout=30, verify=False) as http:
        client = HandshakeClient(http, base + path, headers)
        hello = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "0"}}
        client.greeting = (await client.ask("initialize", hello))["result"]
        yield client


def messages(answer: httpx.Response) -> list[Json]:
    """The JSON-RPC messages of an answer, be it one or a stream."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return [answer.json()]
    lines = (line.removeprefix("data:").strip() for line in answer.text.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line]
