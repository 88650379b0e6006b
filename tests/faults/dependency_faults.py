"""Redis, PostgreSQL and an HTTP backend behind the fault proxy: what each fault does to calls, and for how long."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.faults.client import Client, connections
from tests.faults.kills import SERVER, UNLIMITED
from tests.faults.proxy import FAULTS, Fault, FaultProxy
from tests.flows.killable import program
from tests.flows.process import FILE, Served, run, serving, until, write_settings
from tests.servers import Valkey, postgres_server

Json = dict[str, Any]
CORE = {"core": {"module": "backends.core"}, "project": {"module": "backends.core:project"}}
HOLD = 5.0
"""Seconds that each fault lasts."""


@dataclass
class Away:
    """What the clients saw, over all faults."""

    calls: int = 0
    slowest: float = 0.0
    """Seconds until an answer, whatever it was."""
    wrong: list[str] = field(default_factory=list[str])
    """Answers that must not have been given."""
    recovered: float = 0.0
    """Seconds from the end of a fault until all was as before, at the longest."""


Step = Callable[[], Awaitable[str]]
"""One call; what became of it: `ok`, or the kind of the fault."""


async def redis_away(folder: Path, hold: float = HOLD) -> Away:
    """Two limits, one `closed` and one `local`: the first refuses or answers, the second always answers."""
    valkey = Valkey()
    try:
        with FaultProxy(valkey.port) as proxy:
            rules = {"strict": {"rate": "100000/minute", "tool": "project.*", "on_failure": "closed"}}
            bus = {"url": f"redis://127.0.0.1:{proxy.port}/0"}
            async with _served(folder, backends=CORE, bus=bus, limits={**UNLIMITED, "rules": rules}) as client:
                steps: dict[Step, set[str]] = {
                    _calling(client, "core_ping"): {"ok"},
                    _calling(client, "project_workspace_stats"): {"ok", "unavailable"},
                }
                return await _through(proxy, steps, hold)
    finally:
        valkey.stop()


async def postgres_away(folder: Path, hold: float = HOLD) -> Away:
    """Who was known is served on or told to wait; a key never seen is let in by nobody while it cannot be looked up."""
    with postgres_server() as address:
        with FaultProxy(postgres_target(address)) as proxy:
            url = through(proxy, address)
            async with _served(folder, backends=CORE, database={"url": url}, limits=UNLIMITED) as client:

                async def stranger() -> str:
                    forged = f"gth_{time.monotonic_ns():012x}"[:16] + "_" + "x" * 40
                    said = await client.http.post(
                        client.url, json={}, headers={"authorization": f"Bearer {forged}"}, timeout=30
                    )
                    # Told to wait after too many guesses is refused as well.
                    return "refused" if said.status_code in (401, 429) else str(said.status_code)

                steps: dict[Step, set[str]] = {
                    _calling(client, "core_ping"): {"ok", "unavailable"},
                    stranger: {"refused", "503"},
                }
                return await _through(proxy, steps, hold)


def postgres_target(address: str) -> int | str:
    """Where the server at that address listens."""
    at = urlsplit(address)
    return at.port or 5432 if at.hostname else f"{parse_qs(at.query)['host'][0]}/.s.PGSQL.5432"


def through(proxy: FaultProxy, address: str) -> str:
    """The same database, by way of the proxy."""
    at = urlsplit(address)
    return f"postgresql://{at.username or 'postgres'}@127.0.0.1:{proxy.port}{at.path}"


async def backend_away(folder: Path, hold: float = HOLD) -> Away:
    """A call is answered, or told `unavailable` or `timeout` in the backend's own time; its neighbour is as ever."""
    with program("-I", "-S", SERVER, "modern") as server:
        await server.listens()
        with FaultProxy(server.port) as proxy:
            entry = {"url": f"http://127.0.0.1:{proxy.port}/mcp", "allow_private": True, "timeout": 3}
            async with _served(folder, backends={**CORE, "far": entry}, limits=UNLIMITED) as client:
                steps: dict[Step, set[str]] = {
                    _calling(client, "far_echo", {"text": "hello"}): {"ok", "unavailable", "timeout"},
                    _calling(client, "core_ping"): {"ok"},
                }
                return await _through(proxy, steps, hold)


async def _through(proxy: FaultProxy, steps: "dict[Step, set[str]]", hold: float) -> Away:
    seen = Away()
    for step, allowed in steps.items():
        assert (said := await step()) in allowed, said
    well = [await step() for step in steps]
    for fault in FAULTS:
        await _under(proxy, fault, steps, hold, seen)
        began = time.monotonic()
        while [await step() for step in steps] != well:
            assert time.monotonic() - began < 30, f"still not well 30 s after {fault}"
            await asyncio.sleep(0.05)
        seen.recovered = max(seen.recovered, time.monotonic() - began)
    return seen


async def _under(proxy: FaultProxy, fault: Fault, steps: "dict[Step, set[str]]", hold: float, seen: Away) -> None:
    proxy.set(fault)
    try:
        ends = time.monotonic() + hold
        while time.monotonic() < ends:
            for step, allowed in steps.items():
                began = time.monotonic()
                said = await step()
                seen.calls += 1
                seen.slowest = max(seen.slowest, time.monotonic() - began)
                if said not in allowed:
                    seen.wrong.append(f"{fault}: {said}")
            await asyncio.sleep(0.02)
    finally:
        proxy.set("none")


@dataclass(frozen=True)
class _Known:
    client: Client
    http: httpx.AsyncClient
    url: str
    served: Served


def _calling(known: _Known, tool: str, arguments: Json | None = None) -> Step:
    async def step() -> str:
        said = await known.client.call(tool, arguments)
        if said.kind is not None:
            return said.kind
        if "error" in said.answer:
            data = said.answer["error"].get("data") or said.answer["error"]
            return str(data.get("kind") or said.answer["error"])
        return "ok" if not said.answer["result"].get("isError") else str(said.answer["result"])[:200]

    return step


@asynccontextmanager
async def _served(folder: Path, **settings: Any) -> AsyncIterator[_Known]:
    write_settings(folder, log={"format": "json", "level": "warning"}, **settings)
    key = run(folder, "key", "create", "--config", FILE, "--tenant", "default", "--subject", "load").stdout.strip()
    with serving(folder) as served:
        if "far" in settings["backends"]:
            until(lambda: "far_echo" in _names(served, key), "its tools")
        async with connections() as http:
            yield _Known(Client(http, served.url, key), http, served.url, served)


def _names(served: Served, key: str) -> set[str]:
    return {tool["name"] for tool in served.ask("tools/list", key=key)["result"]["tools"]}
