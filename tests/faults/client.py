"""Client for a gateway in another process, over kept-alive connections; records the notifications of each call."""

import json
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.flows.process import HANDSHAKE, modern, modern_headers

Json = dict[str, Any]
PROGRESS_TOKEN: Final = "equal for all clients"


@dataclass(frozen=True)
class CallResult:
    """The response of one call and the messages before it."""

    response: Json
    notifications: list[Json]

    @property
    def text(self) -> str:
        return self.response["result"]["content"][0]["text"]

    @property
    def kind(self) -> str | None:
        """The kind of the gateway's fault, if the call failed with one."""
        result = self.response.get("result") or {}
        return ((result.get("structuredContent") or {}).get("error") or {}).get("kind")


class Client:
    """A client of one user in one era."""

    def __init__(self, http: httpx.AsyncClient, url: str, key: str, era: str = "modern") -> None:
        self._http = http
        self._url = url
        self._headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
        self._era = era

    async def open(self) -> None:
        """Open a session, in the handshake era."""
        if self._era == "modern":
            return
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "faults", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self._http.post(self._url, json=message, headers=self._headers)
        self._headers |= {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}

    async def call(
        self, tool: str, arguments: Json | None = None, id: int = 1, *, with_notifications: bool = False
    ) -> CallResult:
        meta = (
            {"progressToken": PROGRESS_TOKEN, "io.modelcontextprotocol/logLevel": "debug"} if with_notifications else {}
        )
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}, "_meta": meta}, id)

    async def request(self, method: str, params: Json, id: int = 1) -> CallResult:
        if self._era == "modern":
            message, extra_headers = modern(method, params, id), modern_headers(method, params)
        else:
            message, extra_headers = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}, {}
        response = await self._http.post(self._url, json=message, headers={**self._headers, **extra_headers})
        if response.headers["content-type"].startswith("text/event-stream"):
            *notifications, last = [
                json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")
            ]
            return CallResult(last, notifications)
        return CallResult(response.json(), [])


def connections(limit: int = 16) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=limit, max_keepalive_connections=limit)
    return httpx.AsyncClient(timeout=60, limits=limits, trust_env=False, verify=False)
