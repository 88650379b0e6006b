"""A client of either era that keeps an event stream open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

Json = dict[str, Any]


class OpenStream:
    def __init__(self, response: httpx.Response, session: str = "") -> None:
        self._lines = response.aiter_lines()
        self.session = session
        self.status = response.status_code

    async def wait_for_start(self) -> None:
        await anext(self._lines)

    async def wait_for_end(self) -> None:
        """Wait until the server ends the stream cleanly. Raises if the connection is cut."""
        async for _ in self._lines:
            pass


@asynccontextmanager
async def open_stream(gateway: Any, *, handshake: bool = False) -> AsyncIterator[OpenStream]:
    """Open a long-lived stream: a subscription, or the GET stream of a handshake session."""
    headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
    session = ""
    async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers, timeout=30) as http:
        if handshake:
            params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            session = (await http.post("/mcp", json=message)).headers["mcp-session-id"]
            request = http.stream("GET", "/mcp", headers={"mcp-session-id": session, "accept": "text/event-stream"})
        else:
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            method = "subscriptions/listen"
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            sent = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            request = http.stream("POST", "/mcp", json=message, headers=sent)
        async with request as response:
            assert response.status_code == 200
            stream = OpenStream(response, session)
            await stream.wait_for_start()
            yield stream
