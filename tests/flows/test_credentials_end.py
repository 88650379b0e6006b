"""Open streams, Studio and Godot connections end when the tenant is suspended or the key is revoked or expires."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.credential_clock import HOUR, expire_credentials, wait_for_streams
from tests.peers.open_stream import open_stream

SCOPES = ("mcp:list", "mcp:call", "bridge:roblox", "bridge:godot")
BACKENDS: dict[str, Any] = {
    "core": {"module": "backends.core"},
    "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}},
    "godot": {"module": "backends.godot"},
}
TENANTS: dict[str, Any] = {"default": {}, "acme": {}}
WITHIN = 5.0
POLICY_VIOLATION = 1008


class Studio:
    """A connected Studio with a pending long poll."""

    def __init__(self, http: httpx.AsyncClient, session: str) -> None:
        self._http = http
        self._session = session
        self.poll = asyncio.create_task(self.read(25_000))

    async def read(self, wait: int = 0) -> httpx.Response:
        return await self._http.get(f"/v1/bridge/session/{self._session}/read", params={"timeout_ms": wait})


@asynccontextmanager
async def studio(gateway: Any, key: str) -> AsyncIterator[Studio]:
    headers = {"x-gox-auth": key}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30, verify=False) as http:
        opened = await http.post("/v1/bridge/session", json={"clientName": "Studio"})
        assert opened.status_code == 200, opened.text
        session = opened.json()["sessionId"]
        greeting = await http.get(f"/v1/bridge/session/{session}/read", params={"timeout_ms": 1000})
        assert greeting.status_code == 200
        waiting = Studio(http, session)
        try:
            yield waiting
        finally:
            waiting.poll.cancel()


def editor(gateway: Any, key: str) -> connect:
    url = gateway.base.replace("http://", "ws://") + "/bridge/godot?project=/home/us/game"
    return connect(url, additional_headers={"authorization": f"Bearer {key}"})


async def closed(socket: ClientConnection) -> int:
    """Return the close code that the gateway sends."""
    await socket.wait_closed()
    return socket.close_code or 0


async def test_suspending_a_tenant_in_another_process_ends_only_its_connections(start: Any, run: Any) -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(start(backends=BACKENDS, tenants=TENANTS))
        elsewhere = await stack.enter_async_context(
            run(gateway.app.settings.data_dir.parent, backends=BACKENDS, tenants=TENANTS)
        )
        acme = await gateway.new_key(tenant="acme", scopes=SCOPES)
        ours = await gateway.new_key(scopes=SCOPES)
        theirs = gateway.as_(acme)
        modern = await stack.enter_async_context(open_stream(theirs))
        handshake = await stack.enter_async_context(open_stream(theirs, handshake=True))
        waiting = await stack.enter_async_context(studio(gateway, acme))
        socket = await stack.enter_async_context(editor(gateway, acme))
        others = await stack.enter_async_context(open_stream(gateway.as_(ours)))
        other_studio = await stack.enter_async_context(studio(gateway, ours))
        other_socket = await stack.enter_async_context(editor(gateway, ours))
        await socket.recv()
        await other_socket.recv()

        await elsewhere.app.tenants.change("acme", {"suspended": True})
        async with asyncio.timeout(WITHIN):
            await asyncio.gather(modern.wait_for_end(), handshake.wait_for_end())
            assert (await waiting.poll).status_code == 401
            assert await closed(socket) == POLICY_VIOLATION

        # The tenant cannot reconnect while it is suspended.
        headers = {"authorization": f"Bearer {acme}", "accept": "text/event-stream"}
        async with (
            httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=5, verify=False) as http,
            http.stream("GET", "/mcp", headers={"mcp-session-id": handshake.session}) as again,
        ):
            assert again.status_code == 403
        assert (await waiting.read()).status_code == 403
        with pytest.raises(InvalidStatus):
            async with editor(gateway, acme):
                pass
        left = [
            asyncio.ensure_future(others.wait_for_end()),
            other_studio.poll,
            asyncio.ensure_future(other_socket.recv()),
        ]
        done, still = await asyncio.wait(left, timeout=0.3)
        assert not done
        for task in still:
            task.cancel()


async def test_bridges_end_when_their_key_is_revoked(start: Any) -> None:
    async with start(backends=BACKENDS) as gateway:
        key, info = await gateway.app.keys.create("default", "bob", scopes=SCOPES)
        async with studio(gateway, key) as waiting, editor(gateway, key) as socket:
            await socket.recv()
            await gateway.app.keys.revoke(info.id)
            async with asyncio.timeout(WITHIN):
                assert (await waiting.poll).status_code == 401
                assert await closed(socket) == POLICY_VIOLATION
            assert (await waiting.read()).status_code == 401


async def test_bridges_end_when_their_key_expires(start: Any) -> None:
    async with start(backends=BACKENDS) as gateway:
        key = await gateway.new_key(scopes=SCOPES, expires=time.time() + HOUR)
        async with studio(gateway, key) as waiting, editor(gateway, key) as socket:
            await socket.recv()
            await wait_for_streams(gateway.app, 2)
            expire_credentials(gateway.app)
            async with asyncio.timeout(WITHIN):
                # The poll returns without a message, and the next poll is rejected.
                assert (await waiting.poll).status_code == 204
                await closed(socket)
            assert (await waiting.read()).status_code == 401
