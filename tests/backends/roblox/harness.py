"""A gateway and the Studios that are connected to it, in short words."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from tests.backends.roblox.fake_studio import Peer, agreeable

Json = dict[str, Any]
MODERN = "2026-07-28"
_CLEAR = """
for _, name in {"Workspace", "ServerScriptService"} do game:GetService(name):ClearAllChildren() end
_G.recordings, _G.count = {}, nil
return true
"""


class Desk:
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

    def as_(self, key: str) -> "Desk":
        return Desk(self.gateway.as_(key), self._stack, self._modules, self._headless)

    # ---- calls ----

    async def send(self, method: str, params: Json, meta: Json | None = None) -> Json:
        """One request of 2026-07-28 over a connection that stays."""
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

    async def refusal(self, tool: str, arguments: Json | None = None, **meta: Any) -> Json:
        """The error, with its data lifted."""
        answer = await self.call(tool, arguments, **meta)
        assert "error" in answer, answer
        error = answer["error"]
        return {**error["data"], "number": error["code"], "message": error["message"]}

    async def read(self, uri: str) -> str:
        return (await self.send("resources/read", {"uri": uri}))["result"]["contents"][0]["text"]

    # ---- Studios ----

    async def studio_key(self, tenant: str = "default", subject: str = "alice") -> str:
        return await self.gateway.new_key(tenant, subject, scopes=("bridge:roblox",))

    async def peer(self, answer: Any = agreeable, name: str = "Studio", **who: str) -> Peer:
        """A connected Studio in Python."""
        peer = Peer(self.gateway.base, await self.studio_key(**who), name, answer)
        await self._stack.enter_async_context(peer)
        await peer.ready()
        await (await self._within(who)).connected(name)
        return peer

    async def luau(self, name: str = "Studio", *, patience: float = 30.0, **who: str) -> Any:
        """A connected Studio with the real plugin; its process."""
        modules = await self._modules()
        key = await self.studio_key(**who)
        process = await self._stack.enter_async_context(
            self._headless(self.gateway.base, key, name, modules, patience=patience)
        )
        await (await self._within(who)).connected(name)
        return process

    async def _within(self, who: dict[str, str]) -> "Desk":
        return self.as_(await self.gateway.new_key(who["tenant"])) if "tenant" in who else self

    async def studios(self) -> list[Json]:
        return (await self.output("list_studios"))["studios"]

    async def connected(self, name: str) -> Json:
        async with asyncio.timeout(30):
            while True:
                for studio in await self.studios():
                    if studio["name"] == name and studio["connected"]:
                        return studio
                await asyncio.sleep(0.02)

    # ---- the real plugin ----

    async def module(self, source: str, name: str = "M", kind: str = "ModuleScript") -> str:
        """The id of a new script in ServerScriptService."""
        given = {"parentPath": "ServerScriptService", "name": name, "scriptType": kind, "source": source}
        return (await self.output("script_create", given))["instanceId"]

    async def run(self, function: str, *args: Any) -> Any:
        """What that function of the module M returns."""
        given = {"scriptPath": "ServerScriptService.M", "functionName": function, "args": list(args)}
        return (await self.output("script_execute", given)).get("returnValue")

    async def clear(self) -> None:
        await self.output("script_execute", {"scriptId": await self.module(_CLEAR, "Clear")})
