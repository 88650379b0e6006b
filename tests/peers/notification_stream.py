"""A client that hears of changes, in either era: everything its stream says, line by line."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from tests.conftest import Running
from tests.flows.process import modern, modern_headers
from tests.peers.handshake import HandshakeClient, handshake

PATIENCE = 20.0
Lines = list[str]


async def heard(lines: Lines, words: str, times: int = 1) -> None:
    """Until these words have come so often."""
    async with asyncio.timeout(PATIENCE):
        while "".join(lines).count(words) < times:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def hearing(gateway: Running, *uris: str, era: str = "modern") -> AsyncGenerator[Lines]:
    """Subscribed to these resources and to every list, from the beginning of the block to its end."""
    if era == "modern":
        async with _listening(gateway, uris) as lines:
            yield lines
        return
    async with handshake(gateway.base, gateway.key) as client:
        async with standing(client) as lines:
            for uri in uris:
                assert "result" in await client.ask("resources/subscribe", {"uri": uri})
            yield lines
        # Left without a word, it would be kept for a while: the client may come back.
        await client.http.delete(client.url, headers=client.headers)


@asynccontextmanager
async def standing(client: HandshakeClient) -> AsyncGenerator[Lines]:
    """The GET stream of a session."""
    headers = {**client.headers, "accept": "text/event-stream"}
    async with client.http.stream("GET", client.url, headers=headers) as answer:
        async with _reading(answer) as lines:
            yield lines


@asynccontextmanager
async def _listening(gateway: Running, uris: Sequence[str]) -> AsyncGenerator[Lines]:
    flags = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    params: dict[str, Any] = {"notifications": {**flags, "resourceSubscriptions": list(uris)}}
    headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(timeout=60, verify=False) as http:
        body, more = modern("subscriptions/listen", params), modern_headers("subscriptions/listen")
        async with http.stream("POST", gateway.url, json=body, headers={**headers, **more}) as answer:
            async with _reading(answer) as lines:
                await heard(lines, "acknowledged")
                yield lines


@asynccontextmanager
async def _reading(answer: httpx.Response) -> AsyncGenerator[Lines]:
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
