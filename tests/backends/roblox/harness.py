"""Test harness: a gateway, a client that calls the roblox tools, and the Studios connected to it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from tests.backends.roblox.fake_studio import FakeStudio, echo_request

Json = dict[str, Any]
MODERN = "2026-07-28"
_CLEAR = """
for _, name in {"Workspace", "ServerScriptService"} do game:GetService(name):ClearAllChildren() end
_G.recordings, _G.count = {}, nil
return true
"""


class RobloxHarness:
    def __init__(
        self, gateway: Any, stack: AsyncExitStack, modules: Callable[[], Awaitable[Path]], headless: Any
    ) -> None:
        self.gateway = gateway
        self._stack = stack
        self._modules = modules
        self._headless = headless
        self._http = httpx.AsyncClient(base_url=gateway.base, timeout=60, verify=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    def as_(self, key: str) -> "RobloxHarness":
        return RobloxHarness(self.gateway.as_(key), self._stack, self._modules, self._headless)

    # ---- calls ----

    async def send(self, method: str, params: Json, meta: Json | None = None) -> Json:
        """Send one request of revision 2026-07-28 over a persistent connection."""
        own = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            **(meta or {}),
        }
        headers = {
            "authorization": f"Bearer {self.gateway.key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            "mcp-name": params.get("name") or params.get("uri") or "",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": own}}
        return (await self._http.post("/mcp", json=body, headers=headers)).json()

    async def call(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        name = tool if "." in tool else f"roblox.{tool}"
        return await self.send("tools/call", {"name": name, "arguments": arguments or {}}, meta)

    async def output(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        answer = await self.call(tool, arguments, **meta)
        assert "result" in answer, answer
        return answer["result"]["structuredContent"]["output"]

    async def error(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        """Call a tool that must fail and return its error, merged with the error's data."""
        answer = await self.call(tool, arguments, **meta)
        assert "error" in answer, answer
        error = answer["error"]
        return {**error["data"], "number": error["code"], "message": error["message"]}

    async def read(self, uri: str) -> str:
        return (await self.send("resources/read", {"uri": uri}))["result"]["contents"][0]["text"]

    # ---- Studios ----

    async def studio_key(self, tenant: str = "default", subject: str = "alice") -> str:
        return await self.gateway.new_key(tenant, subject, scopes=("bridge:roblox",))

    async def start_fake(self, answer: Any = echo_request, name: str = "Studio", **identity: str) -> FakeStudio:
        """Connect a fake Studio and return it."""
        peer = FakeStudio(self.gateway.base, await self.studio_key(**identity), name, answer)
        await self._stack.enter_async_context(peer)
        await peer.wait_until_connected()
        await (await self._for_tenant(identity)).wait_for_studio(name)
        return peer

    async def start_plugin(self, name: str = "Studio", *, stall_timeout: float = 30.0, **identity: str) -> Any:
        """Connect a headless Studio with the real plugin and return its process."""
        modules = await self._modules()
        key = await self.studio_key(**identity)
        process = await self._stack.enter_async_context(
            self._headless(self.gateway.base, key, name, modules, stall_timeout=stall_timeout)
        )
        await (await self._for_tenant(identity)).wait_for_studio(name)
        return process

    async def _for_tenant(self, identity: dict[str, str]) -> "RobloxHarness":
        return self.as_(await self.gateway.new_key(identity["tenant"])) if "tenant" in identity else self

    async def studios(self) -> list[Json]:
        return (await self.output("list_studios"))["studios"]

    async def wait_for_studio(self, name: str) -> Json:
        async with asyncio.timeout(30):
            while True:
                for studio in await self.studios():
                    if studio["name"] == name and studio["connected"]:
                        return studio
                await asyncio.sleep(0.02)

    # ---- the real plugin ----

    async def create_script(self, source: str, name: str = "M", kind: str = "ModuleScript") -> str:
        """Create a script in ServerScriptService and return its id."""
        arguments = {"parentPath": "ServerScriptService", "name": name, "scriptType": kind, "source": source}
        return (await self.output("script_create", arguments))["instanceId"]

    async def run(self, function: str, *args: Any) -> Any:
        """Call a function of the module M and return its result."""
        arguments = {"scriptPath": "ServerScriptService.M", "functionName": function, "args": list(args)}
        return (await self.output("script_execute", arguments)).get("returnValue")

    async def clear(self) -> None:
        await self.output("script_execute", {"scriptId": await self.create_script(_CLEAR, "Clear")})
