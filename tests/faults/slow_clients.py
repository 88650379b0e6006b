"""Five hundred clients send their requests slowly: they are disconnected in time, and other calls cost no more."""

import asyncio
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.driver import close_connections, drive, open_connections
from bench.wire import Endpoint
from tests.faults.server_kills import UNLIMITED
from tests.flows.process import Served, serving, write_settings

CLIENTS = 500
HEADER_SECONDS = 4.0
BYTE_INTERVAL = 1.0
"""Seconds between two bytes of a slow client."""
ROUNDS = 5
SECONDS = 3.0


@dataclass(frozen=True)
class SlowClientsResult:
    cpu: float
    """CPU per call with slow clients relative to without: the median of the rounds."""
    latest_close: float
    """Seconds from the header timeout until the last slow client was disconnected."""
    closed: int


async def run_slow_clients(folder: Path) -> SlowClientsResult:
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
        await _cost(served, 1.0)  # warm up
        ratios: list[float] = []
        lifetimes: list[float] = []
        for _ in range(ROUNDS):
            baseline = await _cost(served, SECONDS)
            slow = [asyncio.create_task(_drip(served.port)) for _ in range(CLIENTS)]
            await asyncio.sleep(0.5)
            ratios.append(await _cost(served, SECONDS) / baseline)
            lifetimes += await asyncio.gather(*slow)
    return SlowClientsResult(
        statistics.median(ratios), max(lifetimes) - HEADER_SECONDS, sum(each > 0 for each in lifetimes)
    )


async def _drip(port: int) -> float:
    """Send a byte of a head every `BYTE_INTERVAL` until the gateway disconnects. Returns the seconds until then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.monotonic()
    writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ")
    with suppress(ConnectionError):
        while time.monotonic() - started < 4 * HEADER_SECONDS:
            writer.write(b"x")
            try:
                async with asyncio.timeout(BYTE_INTERVAL):
                    await reader.read()
                break
            except TimeoutError:
                continue
    writer.close()
    return time.monotonic() - started


async def _cost(served: Served, seconds: float) -> float:
    """CPU seconds of the gateway per call, over eight fast connections."""
    connections = await open_connections([Endpoint(served.port, "modern", "plain_echo", served.key)] * 8)
    try:
        before = served.cpu()
        tally = await drive(connections, seconds=seconds)
        return (served.cpu() - before) / tally.calls
    finally:
        close_connections(connections)
