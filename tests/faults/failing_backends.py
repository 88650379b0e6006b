"""One of five backends hangs and one refuses connections: calls of the others and `tools/list` must not get slower."""

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.driver import close_connections, drive, open_connections
from bench.wire import Endpoint
from tests.faults.client import Client, connections
from tests.faults.server_kills import SERVER, UNLIMITED
from tests.flows.killable_server import KillableServer
from tests.flows.process import Served, serving, until, write_settings

ROUNDS = 5
CALLS = 3000


@dataclass(frozen=True)
class Round:
    """Measurements of one round on one gateway."""

    cpu: float
    """CPU seconds of the gateway per call."""
    p50: float
    list_p50: float


@dataclass(frozen=True)
class FailingBackendsResult:
    """Medians over the rounds, relative to the healthy gateway."""

    cpu: float
    p50: float
    list_p50: float


async def failing_backends(folder: Path, rounds: int = ROUNDS, calls: int = CALLS) -> FailingBackendsResult:
    with ExitStack() as stack:
        servers = [stack.enter_context(_server()) for _ in range(7)]
        for server in servers:
            await server.wait_until_listening()
        ports = [server.port for server in servers]
        healthy = stack.enter_context(_gateway(folder / "healthy", ports[:5]))
        degraded = stack.enter_context(_gateway(folder / "degraded", [*ports[:3], *ports[5:]]))
        servers[5].send_signal(signal.SIGSTOP)  # hangs, after its tools were listed
        servers[6].kill()
        for served in (healthy, degraded):
            await _round(served, calls // 4)  # warm up
        pairs: list[tuple[Round, Round]] = []
        for _ in range(rounds):
            pairs.append((await _round(healthy, calls), await _round(degraded, calls)))
    return FailingBackendsResult(
        statistics.median(degraded_round.cpu / healthy_round.cpu for healthy_round, degraded_round in pairs),
        statistics.median(degraded_round.p50 / healthy_round.p50 for healthy_round, degraded_round in pairs),
        statistics.median(degraded_round.list_p50 / healthy_round.list_p50 for healthy_round, degraded_round in pairs),
    )


async def _round(served: Served, calls: int) -> Round:
    """Call three backends over 8 connections, while another client keeps calling the other two."""
    endpoints = [Endpoint(served.port, "modern", f"b{number % 3}_echo", served.key) for number in range(8)]
    driver_connections = await open_connections(endpoints)
    async with connections() as http:
        client = Client(http, served.url, served.key)
        failing_calls = [asyncio.create_task(_call_repeatedly(client, name)) for name in ("b3_echo", "b4_echo")]
        try:
            before = _cpu(served)
            times = [await _time_list(client) for _ in range(40)]
            tally = await drive(driver_connections, seconds=60, limit=calls)
            used = _cpu(served) - before
            assert tally.errors == 0, tally.complaint
        finally:
            for task in failing_calls:
                task.cancel()
            await asyncio.gather(*failing_calls, return_exceptions=True)
            close_connections(driver_connections)
    return Round(used / tally.calls, tally.histogram.percentile(0.5), statistics.median(times))


async def _time_list(client: Client) -> float:
    started = time.perf_counter()
    result = await client.request("tools/list", {})
    assert len(result.response["result"]["tools"]) >= 20
    return time.perf_counter() - started


async def _call_repeatedly(client: Client, tool: str) -> None:
    while True:
        await client.call(tool, {"text": "hello"})
        await asyncio.sleep(0.05)


def _cpu(served: Served) -> float:
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _gateway(folder: Path, ports: list[int]) -> Iterator[Served]:
    folder.mkdir(parents=True)
    backends: dict[str, Any] = {
        f"b{number}": {"url": f"http://127.0.0.1:{port}/mcp", "allow_private": True, "timeout": 2}
        for number, port in enumerate(ports)
    }
    level = {"format": "json", "level": "warning"}
    write_settings(folder, backends=backends, limits=UNLIMITED, log=level, audit={"enabled": True})
    with serving(folder) as served:
        until(lambda: {f"b{number}_echo" for number in range(5)} <= served.tool_names(), "their tools")
        yield served


@contextmanager
def _server() -> Iterator[KillableServer]:
    server = KillableServer("-I", "-S", SERVER, "modern")
    try:
        yield server
    finally:
        server.kill()
