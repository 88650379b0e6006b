"""A minimal client of the handshake era that returns raw messages, including unknown fields."""

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
    """A session of the handshake era."""

    http: httpx.AsyncClient
    url: str
    headers: dict[str, str]
    initialize_result: Json = field(default_factory=dict[str, Any])

    async def send(self, method: str, params: Json | None = None) -> list[Json]:
        """Send a request and return all messages of the response in order: notifications, then the answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        answer = await self.http.post(self.url, json=body, headers=self.headers)
        if session := answer.headers.get("mcp-session-id"):
            self.headers |= {"mcp-session-id": session, "mcp-protocol-version": VERSION}
        return messages(answer)

    async def request(self, method: str, params: Json | None = None) -> Json:
        return (await self.send(method, params))[-1]


@asynccontextmanager
async def handshake(base: str, key: str, path: str = "/mcp", **capabilities: Json) -> AsyncGenerator[HandshakeClient]:
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(timeout=30, verify=False) as http:
        client = HandshakeClient(http, base + path, headers)
        hello = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "0"}}
        client.initialize_result = (await client.request("initialize", hello))["result"]
        yield client


def messages(answer: httpx.Response) -> list[Json]:
    """Return the JSON-RPC messages of a JSON or event-stream response."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return [answer.json()]
    lines = (line.removeprefix("data:").strip() for line in answer.text.splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line]
