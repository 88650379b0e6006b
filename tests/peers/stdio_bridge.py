"""`gatehouse stdio` without an API key, and a browser that handles the sign-in pages that it opens."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx

from gateway.cli.signin import user
from gateway.cli.signin.credential import ClientRegistration
from gateway.cli.signin.token_store import StoredTokens, TokenStore
from gateway.cli.stdio.endpoint import GatewayEndpoint
from tests.peers.oauth_flow import BrowserUser

Json = dict[str, Any]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class PageVisitor(Protocol):
    async def visit(self, url: str, /) -> dict[str, str]: ...


class Browser:
    """Opens the sign-in URLs that the command passes to it and completes them as the user."""

    def __init__(self, user: PageVisitor) -> None:
        self.user = user
        self.opened_urls: list[str] = []
        self._visits: list[asyncio.Task[None]] = []

    @classmethod
    async def signed_in_at(cls, gateway: Any, decision: str = "allow") -> "Browser":
        return cls(BrowserUser(code=await gateway.app.identity.create_sign_in_code(), decision=decision))

    def __call__(self, address: str) -> None:
        self.opened_urls.append(address)
        self._visits.append(asyncio.create_task(self._visit(address)))

    async def _visit(self, address: str) -> None:
        callback = await self.user.visit(address)
        async with httpx.AsyncClient(trust_env=False) as http:
            (await http.get(callback.pop("to"), params=callback)).raise_for_status()


class StdioBridge:
    """The endpoint of `gatehouse stdio`, configured with only the gateway's URL and a folder."""

    def __init__(self, gateway: Any, folder: Path, browser: Callable[[str], None], patience: float = 30.0) -> None:
        self.token_store = TokenStore(folder, gateway.url)
        self.sign_in = user.UserSignIn(
            gateway.url, ClientRegistration(), self.token_store, open_url=browser, timeout=patience
        )
        self.endpoint = GatewayEndpoint(gateway.url, self.sign_in)

    async def call(self, tool: str, **arguments: Any) -> Json:
        params = {"name": tool, "arguments": arguments, "_meta": META}
        message: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        received = [each async for each in self.endpoint.send(message)]
        return json.loads(received[-1])

    @property
    def stored_tokens(self) -> StoredTokens:
        stored = self.token_store.read()
        assert stored is not None
        return stored
