"""Calls while Redis, PostgreSQL or an HTTP backend fails: each is behind the fault proxy."""

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
from tests.faults.proxy import FAULTS, Fault, FaultProxy
from tests.faults.server_kills import SERVER, UNLIMITED
from tests.flows.killable_server import killable_server
from tests.flows.process import FILE, Served, run, serving, until, write_settings
from tests.servers import Valkey, postgres_server

Json = dict[str, Any]
CORE = {"core": {"module": "backends.core"}, "project": {"module": "backends.core:project"}}
FAULT_SECONDS = 5.0
"""Duration of each fault."""


@dataclass
class FaultOutcome:
    """Results of the calls, over all faults."""

    calls: int = 0
    slowest: float = 0.0
    """Longest duration of a call in seconds, successful or not."""
    unexpected: list[str] = field(default_factory=list[str])
    """Results that are not allowed during the fault."""
    recovered: float = 0.0
    """Longest time in seconds from the end of a fault until all calls behave as before."""


Step = Callable[[], Awaitable[str]]
"""Makes one call and returns its result: `ok`, or the kind of the fault."""


async def redis_faults(folder: Path, duration: float = FAULT_SECONDS) -> FaultOutcome:
    """Two limits: the `closed` one may reject calls during a fault, the `local` one must not."""
    valkey = Valkey()
    try:
        with FaultProxy(valkey.port) as proxy:
            rules = {"strict": {"rate": "100000/minute", "tool": "project.*", "on_failure": "closed"}}
            bus = {"url": f"redis://127.0.0.1:{proxy.port}/0"}
            async with _serve(folder, backends=CORE, bus=bus, limits={**UNLIMITED, "rules": rules}) as client:
                steps: dict[Step, set[str]] = {
                    _make_call(client, "core_ping"): {"ok"},
                    _make_call(client, "project_workspace_stats"): {"ok", "unavailable"},
                }
                return await _run_faults(proxy, steps, duration)
    finally:
        valkey.stop()


async def postgres_faults(folder: Path, duration: float = FAULT_SECONDS) -> FaultOutcome:
    """A cached key is accepted or the call is unavailable; an unknown key is never accepted while lookups fail."""
    with postgres_server() as url:
        with FaultProxy(postgres_endpoint(url)) as proxy:
            url = proxied_url(proxy, url)
            async with _serve(folder, backends=CORE, database={"url": url}, limits=UNLIMITED) as client:

                async def unknown_key() -> str:
                    forged = f"gth_{time.monotonic_ns():012x}"[:16] + "_" + "x" * 40
                    result = await client.http.post(
                        client.url, json={}, headers={"authorization": f"Bearer {forged}"}, timeout=30
                    )
                    # 429 after too many failed attempts counts as rejected as well.
                    return "refused" if result.status_code in (401, 429) else str(result.status_code)

                steps: dict[Step, set[str]] = {
                    _make_call(client, "core_ping"): {"ok", "unavailable"},
                    unknown_key: {"refused", "503"},
                }
                return await _run_faults(proxy, steps, duration)


def postgres_endpoint(url: str) -> int | str:
    """The port or socket path of the server at that URL."""
    parsed = urlsplit(url)
    return parsed.port or 5432 if parsed.hostname else f"{parse_qs(parsed.query)['host'][0]}/.s.PGSQL.5432"


def proxied_url(proxy: FaultProxy, url: str) -> str:
    """The URL of the same database through the proxy."""
    parsed = urlsplit(url)
    return f"postgresql://{parsed.username or 'postgres'}@127.0.0.1:{proxy.port}{parsed.path}"


async def backend_faults(folder: Path, duration: float = FAULT_SECONDS) -> FaultOutcome:
    """A call succeeds, or fails with `unavailable` or `timeout` in time; other backends are not affected."""
    with killable_server("-I", "-S", SERVER, "modern") as server:
        await server.wait_until_listening()
        with FaultProxy(server.port) as proxy:
            entry = {"url": f"http://127.0.0.1:{proxy.port}/mcp", "allow_private": True, "timeout": 3}
            async with _serve(folder, backends={**CORE, "far": entry}, limits=UNLIMITED) as client:
                steps: dict[Step, set[str]] = {
                    _make_call(client, "far_echo", {"text": "hello"}): {"ok", "unavailable", "timeout"},
                    _make_call(client, "core_ping"): {"ok"},
                }
                return await _run_faults(proxy, steps, duration)


async def _run_faults(proxy: FaultProxy, steps: "dict[Step, set[str]]", duration: float) -> FaultOutcome:
    outcome = FaultOutcome()
    for step, allowed in steps.items():
        assert (result := await step()) in allowed, result
    healthy = [await step() for step in steps]
    for fault in FAULTS:
        await _run_fault(proxy, fault, steps, duration, outcome)
        started = time.monotonic()
        while [await step() for step in steps] != healthy:
            assert time.monotonic() - started < 30, f"not recovered 30 s after {fault}"
            await asyncio.sleep(0.05)
        outcome.recovered = max(outcome.recovered, time.monotonic() - started)
    return outcome


async def _run_fault(
    proxy: FaultProxy, fault: Fault, steps: "dict[Step, set[str]]", duration: float, outcome: FaultOutcome
) -> None:
    proxy.set(fault)
    try:
        deadline = time.monotonic() + duration
        while time.monotonic() < deadline:
            for step, allowed in steps.items():
                started = time.monotonic()
                result = await step()
                outcome.calls += 1
                outcome.slowest = max(outcome.slowest, time.monotonic() - started)
                if result not in allowed:
                    outcome.unexpected.append(f"{fault}: {result}")
            await asyncio.sleep(0.02)
    finally:
        proxy.set("none")


@dataclass(frozen=True)
class _TestClient:
    client: Client
    http: httpx.AsyncClient
    url: str
    served: Served


def _make_call(client: _TestClient, tool: str, arguments: Json | None = None) -> Step:
    async def step() -> str:
        result = await client.client.call(tool, arguments)
        if result.kind is not None:
            return result.kind
        if "error" in result.response:
            data = result.response["error"].get("data") or result.response["error"]
            return str(data.get("kind") or result.response["error"])
        return "ok" if not result.response["result"].get("isError") else str(result.response["result"])[:200]

    return step


@asynccontextmanager
async def _serve(folder: Path, **settings: Any) -> AsyncIterator[_TestClient]:
    write_settings(folder, log={"format": "json", "level": "warning"}, **settings)
    key = run(folder, "key", "create", "--config", FILE, "--tenant", "default", "--subject", "load").stdout.strip()
    with serving(folder) as served:
        if "far" in settings["backends"]:
            until(lambda: "far_echo" in _names(served, key), "its tools")
        async with connections() as http:
            yield _TestClient(Client(http, served.url, key), http, served.url, served)


def _names(served: Served, key: str) -> set[str]:
    return {tool["name"] for tool in served.request("tools/list", key=key)["result"]["tools"]}
