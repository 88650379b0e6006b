"""Fixtures: one gateway with only the knowledge backend, and a client in a new tenant for each test.

The client validates every tool result against the tool's output schema.
"""

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tests.conftest import MODERN, Running, run_gateway

Json = dict[str, Any]
TENANTS = 600


class GatewayThread:
    """A gateway in its own thread and event loop, shared by tests that each run their own loop."""

    def __init__(self, folder: Any, **settings: Any) -> None:
        self._folder = folder
        self._settings = settings
        self._ready: Future[Running] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.gateway = self._ready.result(timeout=60)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings: Json = {
            "backends": {"knowledge": {"module": "backends.knowledge", "options": {"semantic": False}}},
            "limits": {"calls": "1000000/minute"},
            "tenants": {name: {} for name in ("default", *(f"t{n}" for n in range(TENANTS)))},
            **self._settings,
        }
        try:
            async with run_gateway(self._folder, **settings) as gateway:
                self._ready.set_result(gateway)
                await self._stop.wait()
        except BaseException as exc:
            if not self._ready.done():
                self._ready.set_exception(exc)
            raise

    async def key(self, tenant: str, subject: str) -> str:
        created = asyncio.run_coroutine_threadsafe(self.gateway.new_key(tenant, subject), self._loop)
        return await asyncio.wrap_future(created)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@dataclass(frozen=True)
class MemoryClient:
    """A client of the knowledge backend with the credentials of one caller."""

    gateway_thread: GatewayThread
    http: httpx.AsyncClient
    url: str
    tenant: str
    key: str
    schemas: dict[str, Any] = field(default_factory=dict)

    @property
    def gateway(self) -> Running:
        return self.gateway_thread.gateway.as_(self.key)

    async def post(self, method: str, params: Json | None = None) -> Json:
        """Send one request of protocol version 2026-07-28 and return the JSON-RPC response."""
        return (await self.http.post(self.url, **self._request(method, params or {}))).json()

    @asynccontextmanager
    async def stream(self, method: str, params: Json) -> AsyncIterator[AsyncIterator[Json]]:
        """Send a request and yield the messages of its event stream."""
        async with self.http.stream("POST", self.url, **self._request(method, params)) as response:
            yield (json.loads(line[5:]) async for line in response.aiter_lines() if line.startswith("data:"))

    def _request(self, method: str, params: Json) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            **params.get("_meta", {}),
        }
        headers = {
            "authorization": f"Bearer {self.key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
        }
        if (name := params.get("name") or params.get("uri")) is not None:
            headers["mcp-name"] = name
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return {"json": body, "headers": headers}

    async def result(self, tool: str, arguments: Json, meta: Json | None = None) -> Json:
        """Call a tool and return the complete result."""
        answer = await self.post(
            "tools/call", {"name": f"knowledge_{tool}", "arguments": arguments, "_meta": meta or {}}
        )
        assert "result" in answer, answer
        result = answer["result"]
        await self._check(tool, result["structuredContent"])
        return result

    async def __call__(self, tool: str, **arguments: Any) -> Json:
        """Call a tool that must succeed and return its structured content."""
        result = await self.result(tool, arguments)
        assert not result["isError"], result
        (text, resource) = result["content"]
        assert text["type"] == "text"
        assert text["text"]
        assert json.loads(resource["resource"]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    async def error(self, tool: str, **arguments: Any) -> Json:
        """Call a tool that must fail and return its error object."""
        result = await self.result(tool, arguments)
        assert result["isError"], result
        assert result["content"][0]["text"] == result["structuredContent"]["error"]["message"]
        return result["structuredContent"]["error"]

    async def read(self, uri: str) -> Json:
        answer = await self.post("resources/read", {"uri": uri})
        assert "result" in answer, answer
        (content,) = answer["result"]["contents"]
        assert content["mimeType"] == "application/json"
        body = json.loads(content["text"])
        assert set(body) == {"resource_uri", "as_of_tx_id", "items", "next_cursor"}
        assert body["resource_uri"] == uri == content["uri"]
        return body

    async def pages(self, tool: str, **arguments: Any) -> list[list[Json]]:
        """Return all pages of a search."""
        page = await self(tool, **arguments)
        found = [page["items"]]
        while page["next_cursor"] is not None:
            page = await self(tool, cursor=page["next_cursor"], **arguments)
            found.append(page["items"])
        return found

    async def contents(self, **arguments: Any) -> list[str]:
        return [item["content"] for item in (await self("query", **arguments))["items"]]

    async def as_subject(self, subject: str) -> "MemoryClient":
        return replace(self, key=await self.gateway_thread.key(self.tenant, subject))

    async def in_other_tenant(self) -> "MemoryClient":
        """Return a client with the same subject in a new tenant."""
        tenant = f"t{next(_numbers)}"
        return replace(self, tenant=tenant, key=await self.gateway_thread.key(tenant, "alice"))

    async def _check(self, tool: str, structured: Json) -> None:
        if not self.schemas:
            listed = (await self.post("tools/list"))["result"]["tools"]
            self.schemas.update({each["name"]: jsonschema_rs.validator_for(each["outputSchema"]) for each in listed})
        self.schemas[f"knowledge_{tool}"].validate(structured)


_numbers = itertools.count()


@pytest.fixture(scope="session")
def gateway_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayThread]:
    gateway_thread = GatewayThread(tmp_path_factory.mktemp("knowledge"))
    yield gateway_thread
    gateway_thread.close()


@pytest.fixture
async def memory(gateway_thread: GatewayThread) -> AsyncIterator[MemoryClient]:
    async with new_tenant_client(gateway_thread) as memory:
        yield memory


@asynccontextmanager
async def new_tenant_client(gateway_thread: GatewayThread) -> AsyncIterator[MemoryClient]:
    """Yield a client in a new tenant."""
    tenant = f"t{next(_numbers)}"
    # The gateway serves plain HTTP; loading the system certificates would take longer than a call.
    async with httpx.AsyncClient(timeout=30, verify=False) as http:
        yield MemoryClient(
            gateway_thread, http, gateway_thread.gateway.url, tenant, await gateway_thread.key(tenant, "alice")
        )
