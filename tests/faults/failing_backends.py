"""One of five backends hangs and one refuses connections: the other three, and the list, are as they were."""

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
from tests.faults.kills import SERVER, UNLIMITED
from tests.flows.killable import Program
from tests.flows.process import Served, serving, until, write_settings

ROUNDS = 5
CALLS = 3000


@dataclass(frozen=True)
class Round:
    """One round on one gateway."""

    cpu: float
    """Seconds of the gateway's processor time for each call."""
    p50: float
    list_p50: float


@dataclass(frozen=True)
class Neighbours:
    """Medians over the rounds, as multiples of the healthy gateway's."""

    cpu: float
    p50: float
    list_p50: float


async def neighbours(folder: Path, rounds: int = ROUNDS, calls: int = CALLS) -> Neighbours:
    with ExitStack() as stack:
        servers = [stack.enter_context(_server()) for _ in range(7)]
        for server in servers:
            await server.listens()
        ports = [server.port for server in servers]
        well = stack.enter_context(_gateway(folder / "well", ports[:5]))
        ill = stack.enter_context(_gateway(folder / "ill", [*ports[:3], *ports[5:]]))
        servers[5].signal(signal.SIGSTOP)  # its tools were listed; now it hangs
        servers[6].kill()
        for served in (well, ill):
            await _round(served, calls // 4)  # warm
        pairs: list[tuple[Round, Round]] = []
        for _ in range(rounds):
            pairs.append((await _round(well, calls), await _round(ill, calls)))
    return Neighbours(
        statistics.median(bad.cpu / fine.cpu for fine, bad in pairs),
        statistics.median(bad.p50 / fine.p50 for fine, bad in pairs),
        statistics.median(bad.list_p50 / fine.list_p50 for fine, bad in pairs),
    )


async def _round(served: Served, calls: int) -> Round:
    """Three backends are called by 8 connections; meanwhile a client keeps trying the other two, well or ill."""
    doors = [Endpoint(served.port, "modern", f"b{number % 3}_echo", served.key) for number in range(8)]
    lanes = await open_connections(doors)
    async with connections() as http:
        client = Client(http, served.url, served.key)
        bothering = [asyncio.create_task(_bother(client, name)) for name in ("b3_echo", "b4_echo")]
        try:
            before = _cpu(served)
            times = [await _timed(client) for _ in range(40)]
            tally = await drive(lanes, seconds=60, limit=calls)
            spent = _cpu(served) - before
            assert tally.errors == 0, tally.complaint
        finally:
            for task in bothering:
                task.cancel()
            await asyncio.gather(*bothering, return_exceptions=True)
            close_connections(lanes)
    return Round(spent / tally.calls, tally.histogram.percentile(0.5), statistics.median(times))


async def _timed(client: Client) -> float:
    began = time.perf_counter()
    said = await client.ask("tools/list", {})
    assert len(said.answer["result"]["tools"]) >= 20
    return time.perf_counter() - began


async def _bother(client: Client, tool: str) -> None:
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
def _server() -> Iterator[Program]:
    server = Program("-I", "-S", SERVER, "modern")
    try:
        yield server
    finally:
        server.kill()
