"""Handwritten task clients of both eras, which can send each request to another replica."""

import asyncio
import json
from typing import Any

import httpx

from tests.conftest import Running
from tests.flows.replica_client import HandshakeClient

Json = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABLE: Json = {
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {EXTENSION: {}}},
}
TERMINAL = ("completed", "failed", "cancelled")


async def call_modern(gateway: Running, tool: str, arguments: Json, **meta: Any) -> Json:
    """Call a tool as a client of 2026-07-28 that can use tasks, and return the JSON-RPC response."""
    response = await gateway.post("tools/call", {"name": tool, "arguments": arguments, "_meta": {**CAPABLE, **meta}})
    return last_message(response)


async def request_modern(gateway: Running, method: str, id: str, meta: Json = CAPABLE, **params: Any) -> Json:
    response = await gateway.post(method, {"taskId": id, "_meta": meta, **params}, mcp_name=id)
    return response.json()


async def wait_modern(gateway: Running, id: str, *statuses: str, seconds: float = 30) -> Json:
    """Poll until the task has one of the statuses, or has ended."""
    async with asyncio.timeout(seconds):
        while True:
            task = (await request_modern(gateway, "tasks/get", id))["result"]
            if task["status"] in (statuses or TERMINAL):
                return task
            await asyncio.sleep(0.05)


async def request(client: HandshakeClient, at: Running, method: str, **params: Any) -> Json:
    """Send a request of 2025-11-25 and return the JSON-RPC response."""
    return last_message(await client.post(at, {"id": 1, "method": method, "params": params}))


def last_message(response: httpx.Response) -> Json:
    """The JSON-RPC response, of a JSON body or at the end of an event stream."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.json()
    data = [line[5:] for line in response.text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return json.loads(data[-1])


async def wait_handshake(client: HandshakeClient, at: Running, id: str, *statuses: str, seconds: float = 30) -> Json:
    async with asyncio.timeout(seconds):
        while True:
            task = (await request(client, at, "tasks/get", taskId=id))["result"]
            if task["status"] in (statuses or TERMINAL):
                return task
            await asyncio.sleep(0.05)
