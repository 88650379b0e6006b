"""A gateway with the bridge open, a Studio in Python, and the real plugin in a real Luau VM."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gateway.app as app
import gateway.upstream.load as load
from backends.roblox.demo import DemoError, headless, install
from gateway.edge.bridge import bridge_router
from gateway.state.bus import MemoryBus
from gateway.upstream.bridge import Bridges
from tests.backends.roblox.peer import Peer, agreeable

BRIDGE = ("bridge:roblox",)
Json = dict[str, Any]


@pytest.fixture
def bridged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the composition root joins the relay to the modules, this does."""
    if hasattr(app, "Bridges"):
        return
    made: dict[int, Bridges] = {}
    routes, loading = app.Gatehouse._plain_routes, app.Gatehouse._load

    def bridges(house: Any) -> Bridges:
        return made.setdefault(id(house), Bridges(MemoryBus(), cut=0.3))

    def with_relay(house: Any) -> Any:
        async def authenticate(headers: Any, address: str) -> Any:
            return await (await house._authenticate())(headers, address)

        plain = routes(house)
        plain.include_router(bridge_router(bridges(house), authenticate))
        return plain

    def with_bridge(house: Any, namespace: str, entry: Any) -> Any:
        monkeypatch.setattr(load, "NoBridge", lambda: bridges(house).for_backend(namespace))
        return loading(house, namespace, entry)

    monkeypatch.setattr(app.Gatehouse, "_plain_routes", with_relay)
    monkeypatch.setattr(app.Gatehouse, "_load", with_bridge)


@dataclass
class Desk:
    """A gateway and the Studios that are connected to it."""

    gateway: Any
    stack: AsyncExitStack
    modules: Callable[[], Awaitable[Path]]

    async def call(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        return await self.gateway.call(f"roblox.{tool}", arguments, meta or None)

    async def output(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        answer = await self.call(tool, arguments, **meta)
        assert "result" in answer, answer
        return answer["result"]["structuredContent"]["output"]

    async def refusal(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        """The error, with its data lifted."""
        answer = await self.call(tool, arguments, **meta)
        assert "error" in answer, answer
        error = answer["error"]
        return {**error["data"], "number": error["code"], "message": error["message"]}

    async def studio_key(self, tenant: str = "default", subject: str = "alice") -> str:
        return await self.gateway.new_key(tenant, subject, scopes=BRIDGE)

    async def peer(self, answer: Any = agreeable, name: str = "Studio", **who: str) -> Peer:
        """A connected Studio in Python."""
        peer = Peer(self.gateway.base, await self.studio_key(**who), name, answer)
        await self.stack.enter_async_context(peer)
        await peer.ready()
        await self.connected(name)
        return peer

    async def luau(self, name: str = "Studio", *, patience: float = 30.0, **who: str) -> Any:
        """A connected Studio with the real plugin; its process."""
        modules = await self.modules()
        key = await self.studio_key(**who)
        process = await self.stack.enter_async_context(
            headless(self.gateway.base, key, name, modules, patience=patience)
        )
        tenant = who.get("tenant", "default")
        reader = self.as_(await self.gateway.new_key(tenant)) if tenant != "default" else self
        await reader.connected(name)
        return process

    def as_(self, key: str) -> "Desk":
        return Desk(self.gateway.as_(key), self.stack, self.modules)

    async def studios(self) -> list[Json]:
        return (await self.output("list_studios"))["studios"]

    async def connected(self, name: str) -> Json:
        async with asyncio.timeout(30):
            while True:
                for studio in await self.studios():
                    if studio["name"] == name and studio["connected"]:
                        return studio
                await asyncio.sleep(0.02)


@pytest.fixture
def opening(start: Any, bridged: None) -> Callable[..., Any]:
    """`async with opening(request_timeout=1) as desk`: the options are the roblox backend's."""

    @asynccontextmanager
    async def open_desk(**options: Any) -> AsyncIterator[Desk]:
        backends = {
            "core": {"module": "backends.core"},
            "workflow": {"module": "backends.workflow"},
            "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True, **options}},
        }
        limits = {"calls": "100000/minute"}
        serving = start(backends=backends, tenants={"default": {}, "other": {}}, limits=limits)
        async with serving as gateway, AsyncExitStack() as stack:
            yield Desk(gateway, stack, _modules)

    return open_desk


@pytest.fixture
async def desk(opening: Callable[..., Any]) -> AsyncIterator[Desk]:
    async with opening() as opened:
        yield opened


async def _modules() -> Path:
    try:
        return await install()
    except DemoError as exc:
        if os.environ.get("GATEHOUSE_TESTS_NO_SKIP") == "1":
            pytest.fail(str(exc))
        pytest.skip(str(exc))
