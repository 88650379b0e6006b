"""A client that keeps a stream open, of either era."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

Json = dict[str, Any]


class Stream:
    def __init__(self, response: httpx.Response, session: str = "") -> None:
        self._lines = response.aiter_lines()
        self.session = session
        self.status = response.status_code

    async def begun(self) -> None:
        await anext(self._lines)

    async def over(self) -> None:
        """Until the server ends it, whole: a cut connection raises."""
        async for _ in self._lines:
            pass


@asynccontextmanager
async def listening(gateway: Any, *, handshake: bool = False) -> AsyncIterator[Stream]:
    """A stream that never ends by itself: a subscription, or the standing stream of a session."""
    headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
    session = ""
    async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers, timeout=30) as http:
        if handshake:
            params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            session = (await http.post("/mcp", json=message)).headers["mcp-session-id"]
            asking = http.stream("GET", "/mcp", headers={"mcp-session-id": session, "accept": "text/event-stream"})
        else:
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            method = "subscriptions/listen"
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            sent = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            asking = http.stream("POST", "/mcp", json=message, headers=sent)
        async with asking as response:
            assert response.status_code == 200
            stream = Stream(response, session)
            await stream.begun()
            yield stream
