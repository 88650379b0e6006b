"""A real gateway for tests: in this process, on a socket of its own, with an SDK client in either era."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.app import Gatehouse
from gateway.auth.api_keys import DEFAULT_SCOPES
from gateway.runner import config, listen
from gateway.settings import Settings
from gateway.telemetry.log import Lines
from tests.quiet import QuietServer
from tests.servers import _shared_valkey, database_url, postgres, postgres_url, prefix, valkey, valkey_url

__all__ = ["_shared_valkey", "database_url", "postgres", "postgres_url", "prefix", "valkey", "valkey_url"]

# To a root logger without a handler, the SDK's servers give one of rich's, for good: it draws every traceback that a
# later test logs, which takes seconds each.
logging.getLogger().addHandler(logging.NullHandler())

MODERN = "2026-07-28"
HANDSHAKE = "legacy"
Json = dict[str, Any]


@dataclass(frozen=True)
class Running:
    """A gateway that listens. `key` is the default tenant's, with the default scopes."""

    house: Gatehouse
    base: str
    key: str
    log: io.StringIO

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    async def new_key(
        self, tenant: str = "default", subject: str = "bob", scopes: Any = DEFAULT_SCOPES, **more: Any
    ) -> str:
        return (await self.house.keys.create(tenant, subject, scopes=scopes, **more))[0]

    def as_(self, key: str) -> "Running":
        return replace(self, key=key)

    @asynccontextmanager
    async def client(self, mode: str = MODERN, path: str = "/mcp", **more: Any) -> AsyncGenerator[Client]:
        """The SDK's own client, over the socket."""
        headers = {"authorization": f"Bearer {self.key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=30, verify=False) as http:
            transport = streamable_http_client(self.base + path, http_client=http)
            async with Client(transport, mode=mode, cache=None, **more) as client:
                yield client

    async def post(self, method: str, params: Json | None = None, path: str = "/mcp", **headers: str) -> httpx.Response:
        """One request of 2026-07-28, written by hand."""
        params = dict(params or {})
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            **params.get("_meta", {}),
        }
        sent = {
            "authorization": f"Bearer {self.key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if (name := params.get("name") or params.get("uri")) is not None:
            sent.setdefault("mcp-name", name)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        # Without a TLS context, which takes 40 ms to make and serves no one on loopback.
        async with httpx.AsyncClient(timeout=30, verify=False) as http:
            return await http.post(self.base + path, json=body, headers=sent)

    async def listed(self, tool: str, seconds: float = 30) -> None:
        """Until the tool is in the list: a slow server's tools come when they come."""
        async with asyncio.timeout(seconds):
            while tool not in (await self.post("tools/list")).text:
                await asyncio.sleep(0.05)

    async def call(
        self, tool: str, arguments: Json | None = None, meta: Json | None = None, path: str = "/mcp"
    ) -> Json:
        """The JSON-RPC answer to one `tools/call`."""
        params: Json = {"name": tool, "arguments": arguments or {}}
        if meta:
            params["_meta"] = meta
        return (await self.post("tools/call", params, path)).json()


@asynccontextmanager
async def run_gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """Serve these settings on a free port until the block ends."""
    given: Json = {"data_dir": folder / "data", "log": {"format": "json"}, **settings}
    given["server"] = {"port": 0, **given.get("server", {})}
    parsed = Settings(**given)
    log = io.StringIO()
    async with AsyncExitStack() as stack:
        bound = listen(parsed)
        stack.callback(bound.close)
        house = await Gatehouse.open(parsed, Lines(log), bound.getsockname()[1])
        stack.push_async_callback(house.close)
        port = await stack.enter_async_context(QuietServer(config(house)).running(bound))
        stack.push_async_callback(house.drain)
        key, _ = await house.keys.create("default", "alice")
        yield Running(house, f"http://127.0.0.1:{port}", key, log)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`async with start(backends={...}) as gateway:`"""

    def starting(**settings: Any) -> AbstractAsyncContextManager[Running]:
        return run_gateway(tmp_path, **settings)

    return starting


@pytest.fixture
def run() -> Callable[..., AbstractAsyncContextManager[Running]]:
    """`async with run(folder, backends={...}) as gateway:`, for tests that need several."""
    return run_gateway


@pytest.fixture
async def gateway(start: Start) -> AsyncIterator[Running]:
    """The gateway with what it serves by default."""
    async with start() as running:
        yield running


@pytest.fixture(params=[MODERN, HANDSHAKE])
def era(request: pytest.FixtureRequest) -> str:
    """Each of the two eras in turn."""
    return request.param
