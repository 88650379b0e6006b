"""Five hundred clients that drip their requests: they are cut on time, and the others' calls cost what they did."""

import asyncio
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.driver import close_connections, drive, open_connections
from bench.wire import Endpoint
from tests.faults.kills import UNLIMITED
from tests.flows.process import Served, serving, write_settings

CLIENTS = 500
HEADER_SECONDS = 4.0
EVERY = 1.0
"""Seconds between two bytes of a slow client."""
ROUNDS = 5
SECONDS = 3.0


@dataclass(frozen=True)
class Slow:
    cpu: float
    """Median over the rounds of a call's CPU beside slow clients, as a multiple of one without them."""
    late: float
    """Seconds by which the last slow client outlived its time."""
    cut: int


async def slow_clients(folder: Path) -> Slow:
    write_settings(
        folder,
        backends={"plain": {"module": "tests.flows.fixtures.plain"}},
        limits=UNLIMITED,
        log={"format": "json", "level": "warning"},
        server={
            "header_timeout": HEADER_SECONDS,
            "max_connections_per_ip": 4 * CLIENTS,
            "max_connections": 8 * CLIENTS,
        },
    )
    with serving(folder) as served:
        await _cost(served, 1.0)  # warm
        ratios: list[float] = []
        lived: list[float] = []
        for _ in range(ROUNDS):
            alone = await _cost(served, SECONDS)
            dripping = [asyncio.create_task(_drip(served.port)) for _ in range(CLIENTS)]
            await asyncio.sleep(0.5)
            ratios.append(await _cost(served, SECONDS) / alone)
            lived += await asyncio.gather(*dripping)
    return Slow(statistics.median(ratios), max(lived) - HEADER_SECONDS, sum(each > 0 for each in lived))


async def _drip(port: int) -> float:
    """How long it lived: a byte of a head now and then, until the other side hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ")
    with suppress(ConnectionError):
        while time.monotonic() - began < 4 * HEADER_SECONDS:
            writer.write(b"x")
            try:
                async with asyncio.timeout(EVERY):
                    await reader.read()
                break
            except TimeoutError:
                continue
    writer.close()
    return time.monotonic() - began


async def _cost(served: Served, seconds: float) -> float:
    """CPU of the gateway for each call of eight good connections."""
    lanes = await open_connections([Endpoint(served.port, "modern", "plain_echo", served.key)] * 8)
    try:
        before = served.cpu()
        tally = await drive(lanes, seconds=seconds)
        return (served.cpu() - before) / tally.calls
    finally:
        close_connections(lanes)
