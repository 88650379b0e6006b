"""Calls to a gateway in a process of its own, over kept connections, with everything it said on the way."""

import json
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.flows.process import HANDSHAKE, modern, modern_headers

Json = dict[str, Any]
TOKEN: Final = "the same for everybody"


@dataclass(frozen=True)
class Said:
    """The answer to one call, and what came before it."""

    answer: Json
    before: list[Json]

    @property
    def text(self) -> str:
        return self.answer["result"]["content"][0]["text"]

    @property
    def kind(self) -> str | None:
        """Of the fault, if it is one of the gateway's."""
        result = self.answer.get("result") or {}
        return ((result.get("structuredContent") or {}).get("error") or {}).get("kind")


class Client:
    """One user's, in one era."""

    def __init__(self, http: httpx.AsyncClient, url: str, key: str, era: str = "modern") -> None:
        self._http = http
        self._url = url
        self._headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
        self._era = era

    async def open(self) -> None:
        """A session, where the era has them."""
        if self._era == "modern":
            return
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "faults", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self._http.post(self._url, json=message, headers=self._headers)
        self._headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}

    async def call(self, tool: str, arguments: Json | None = None, id: int = 1, *, told: bool = False) -> Said:
        meta = {"progressToken": TOKEN, "io.modelcontextprotocol/logLevel": "debug"} if told else {}
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}, "_meta": meta}, id)

    async def ask(self, method: str, params: Json, id: int = 1) -> Said:
        if self._era == "modern":
            message, more = modern(method, params, id), modern_headers(method, params)
        else:
            message, more = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}, {}
        answer = await self._http.post(self._url, json=message, headers={**self._headers, **more})
        if answer.headers["content-type"].startswith("text/event-stream"):
            *before, last = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
            return Said(last, before)
        return Said(answer.json(), [])


def connections(most: int = 16) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    return httpx.AsyncClient(timeout=60, limits=limits, trust_env=False, verify=False)
