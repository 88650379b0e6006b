"""A client that subscribes to notifications in either era and collects the lines of its stream."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from tests.conftest import Running
from tests.flows.process import modern, modern_headers
from tests.peers.handshake import HandshakeClient, handshake

TIMEOUT = 20.0
Lines = list[str]


async def wait_for_text(lines: Lines, text: str, times: int = 1) -> None:
    """Wait until `text` has arrived `times` times."""
    async with asyncio.timeout(TIMEOUT):
        while "".join(lines).count(text) < times:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def subscribe_all(gateway: Running, *uris: str, era: str = "modern") -> AsyncGenerator[Lines]:
    """Subscribe to these resources and to every list while the context is open."""
    if era == "modern":
        async with _listen(gateway, uris) as lines:
            yield lines
        return
    async with handshake(gateway.base, gateway.key) as client:
        async with get_stream(client) as lines:
            for uri in uris:
                assert "result" in await client.request("resources/subscribe", {"uri": uri})
            yield lines
        # Delete the session: otherwise the gateway keeps it for a while for a reconnect.
        await client.http.delete(client.url, headers=client.headers)


@asynccontextmanager
async def get_stream(client: HandshakeClient) -> AsyncGenerator[Lines]:
    """Open the GET stream of a session."""
    headers = {**client.headers, "accept": "text/event-stream"}
    async with client.http.stream("GET", client.url, headers=headers) as answer:
        async with _read_lines(answer) as lines:
            yield lines


@asynccontextmanager
async def _listen(gateway: Running, uris: Sequence[str]) -> AsyncGenerator[Lines]:
    flags = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    params: dict[str, Any] = {"notifications": {**flags, "resourceSubscriptions": list(uris)}}
    headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(timeout=60, verify=False) as http:
        body, more = modern("subscriptions/listen", params), modern_headers("subscriptions/listen")
        async with http.stream("POST", gateway.url, json=body, headers={**headers, **more}) as answer:
            async with _read_lines(answer) as lines:
                await wait_for_text(lines, "acknowledged")
                yield lines


@asynccontextmanager
async def _read_lines(answer: httpx.Response) -> AsyncGenerator[Lines]:
    assert answer.status_code == 200, await answer.aread()
    lines: Lines = []

    async def read() -> None:
        async for line in answer.aiter_lines():
            lines.append(line)

    task = asyncio.create_task(read())
    try:
        yield lines
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
