"""Fixtures that run a real gateway in the test process, on its own socket, with SDK clients of either era."""

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

from gateway.app import Gateway
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.runner import build_config, listen
from gateway.settings import Settings
from gateway.telemetry.log import LogLines
from tests.in_process_server import InProcessServer
from tests.prerequisites import summarize_missing
from tests.servers import _shared_valkey, database_url, postgres, postgres_url, prefix, valkey, valkey_url

__all__ = ["_shared_valkey", "database_url", "postgres", "postgres_url", "prefix", "valkey", "valkey_url"]

# Without a handler on the root logger, the SDK's servers install a rich handler permanently. It renders every
# traceback that a later test logs, which takes seconds each.
logging.getLogger().addHandler(logging.NullHandler())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which programs are missing on this machine and how to get them."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in skipped]
    lines = summarize_missing(reasons)
    if lines:
        terminalreporter.section("missing programs")
        for line in lines:
            terminalreporter.write_line(line)


MODERN = "2026-07-28"
HANDSHAKE = "legacy"
Json = dict[str, Any]


@dataclass(frozen=True)
class Running:
    """A running gateway. `key` belongs to tenant `default` and has the default scopes."""

    app: Gateway
    base: str
    key: str
    log: io.StringIO

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    async def new_key(
        self, tenant: str = "default", subject: str = "bob", scopes: Any = DEFAULT_SCOPES, **more: Any
    ) -> str:
        return (await self.app.keys.create(tenant, subject, scopes=scopes, **more))[0]

    def as_(self, key: str) -> "Running":
        return replace(self, key=key)

    @asynccontextmanager
    async def client(self, mode: str = MODERN, path: str = "/mcp", **more: Any) -> AsyncGenerator[Client]:
        """Connect the SDK's client over the socket."""
        headers = {"authorization": f"Bearer {self.key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=30, verify=False) as http:
            transport = streamable_http_client(self.base + path, http_client=http)
            async with Client(transport, mode=mode, cache=None, **more) as client:
                yield client

    async def post(self, method: str, params: Json | None = None, path: str = "/mcp", **headers: str) -> httpx.Response:
        """Send one request of 2026-07-28, without the SDK."""
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
        # Without a TLS context: creating one takes 40 ms, and loopback does not need it.
        async with httpx.AsyncClient(timeout=30, verify=False) as http:
            return await http.post(self.base + path, json=body, headers=sent)

    async def wait_for_tool(self, tool: str, seconds: float = 30) -> None:
        """Wait until the tool is listed. Backends that are slow to start appear later."""
        async with asyncio.timeout(seconds):
            while tool not in (await self.post("tools/list")).text:
                await asyncio.sleep(0.05)

    async def call(
        self, tool: str, arguments: Json | None = None, meta: Json | None = None, path: str = "/mcp"
    ) -> Json:
        """Call a tool and return the JSON-RPC response."""
        params: Json = {"name": tool, "arguments": arguments or {}}
        if meta:
            params["_meta"] = meta
        return (await self.post("tools/call", params, path)).json()


@asynccontextmanager
async def run_gateway(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """Serve these settings on a free port until the block ends."""
    values: Json = {"data_dir": folder / "data", "log": {"format": "json"}, **settings}
    values["server"] = {"port": 0, **values.get("server", {})}
    parsed = Settings(**values)
    log = io.StringIO()
    async with AsyncExitStack() as stack:
        bound = listen(parsed)
        stack.callback(bound.close)
        gateway = await Gateway.open(parsed, LogLines(log), bound.getsockname()[1])
        stack.push_async_callback(gateway.close)
        port = await stack.enter_async_context(InProcessServer(build_config(gateway)).running(bound))
        stack.push_async_callback(gateway.drain)
        key, _ = await gateway.keys.create("default", "alice")
        yield Running(gateway, f"http://127.0.0.1:{port}", key, log)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`async with start(backends={...}) as gateway:`"""

    def start_gateway(**settings: Any) -> AbstractAsyncContextManager[Running]:
        return run_gateway(tmp_path, **settings)

    return start_gateway


@pytest.fixture
def run() -> Callable[..., AbstractAsyncContextManager[Running]]:
    """`async with run(folder, backends={...}) as gateway:`, for tests that need several gateways."""
    return run_gateway


@pytest.fixture
async def gateway(start: Start) -> AsyncIterator[Running]:
    """A gateway with its default backends."""
    async with start() as running:
        yield running


@pytest.fixture(params=[MODERN, HANDSHAKE])
def era(request: pytest.FixtureRequest) -> str:
    """Run the test once in each era."""
    return request.param
