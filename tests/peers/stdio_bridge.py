"""A desk of the command's user: what `gatehouse stdio` is without a key, and a browser for the pages that it opens."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx

from gateway.cli.signin import person
from gateway.cli.signin.kept import Kept, Shelf
from gateway.cli.signin.program import Program
from gateway.cli.stdio.endpoint import Endpoint
from tests.peers.oauth_flow import Person

Json = dict[str, Any]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Visiting(Protocol):
    async def visit(self, url: str, /) -> dict[str, str]: ...


class Browser:
    """Goes through the pages that it is shown, as its person would."""

    def __init__(self, person: Visiting) -> None:
        self.person = person
        self.shown: list[str] = []
        self._visits: list[asyncio.Task[None]] = []

    @classmethod
    async def at(cls, gateway: Any, decision: str = "allow") -> "Browser":
        return cls(Person(code=await gateway.house.identity.sign_in_code(), decision=decision))

    def __call__(self, address: str) -> None:
        self.shown.append(address)
        self._visits.append(asyncio.create_task(self._visit(address)))

    async def _visit(self, address: str) -> None:
        told = await self.person.visit(address)
        async with httpx.AsyncClient(trust_env=False) as http:
            (await http.get(told.pop("to"), params=told)).raise_for_status()


class Bridged:
    """The endpoint of `gatehouse stdio` with nothing but the gateway's address and a folder."""

    def __init__(self, gateway: Any, folder: Path, browser: Callable[[str], None], patience: float = 30.0) -> None:
        self.shelf = Shelf(folder, gateway.url)
        self.person = person.Person(gateway.url, Program(), self.shelf, show=browser, patience=patience)
        self.endpoint = Endpoint(gateway.url, self.person)

    async def call(self, tool: str, **arguments: Any) -> Json:
        params = {"name": tool, "arguments": arguments, "_meta": META}
        message: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        said = [each async for each in self.endpoint.send(message)]
        return json.loads(said[-1])

    @property
    def kept(self) -> Kept:
        kept = self.shelf.read()
        assert kept is not None
        return kept
