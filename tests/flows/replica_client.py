"""A handwritten client of the handshake era that can send each request to another replica."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.conftest import Running

Json = dict[str, Any]
VERSION = "2025-11-25"


class Events:
    """The events of one open response stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.last_id = ""
        self._lines = response.aiter_lines()

    async def next(self) -> Json:
        """Return the next message; skip priming events and comments."""
        async for line in self._lines:
            if line.startswith("id:"):
                self.last_id = line[3:].strip()
            elif line.startswith("data:") and (data := line[5:].strip()):
                return json.loads(data)
        raise EOFError


class HandshakeClient:
    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http = http
        self._headers = {
            "authorization": f"Bearer {key}",
            "accept": "text/event-stream, application/json",
            "mcp-protocol-version": VERSION,
        }

    async def initialize(self, at: Running, **capabilities: Any) -> None:
        params = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.post(at, {"id": 0, "method": "initialize", "params": params})
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        await self.post(at, {"method": "notifications/initialized"})

    async def post(self, at: Running, message: Json) -> httpx.Response:
        headers = {**self._headers, "accept": "application/json, text/event-stream"}
        return await self._http.post(at.url, json={"jsonrpc": "2.0", **message}, headers=headers)

    @asynccontextmanager
    async def call(self, at: Running, id: int, tool: str, arguments: Json | None = None) -> AsyncIterator[Events]:
        """Call a tool and stream its response."""
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": id}}
        async with self.send(at, id, "tools/call", params) as events:
            yield events

    @asynccontextmanager
    async def send(self, at: Running, id: int, method: str, params: Json) -> AsyncIterator[Events]:
        """Send a request and stream its response."""
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        async with self._http.stream("POST", at.url, json=message, headers=self._headers) as response:
            yield Events(response)

    @asynccontextmanager
    async def listen(self, at: Running, last: str | None = None) -> AsyncIterator[Events]:
        headers = {**self._headers, "accept": "text/event-stream", **({"last-event-id": last} if last else {})}
        async with self._http.stream("GET", at.url, headers=headers) as response:
            yield Events(response)
