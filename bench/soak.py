"""`python -m bench.soak`: measures memory growth over a million calls, and memory per idle session and stream."""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import uvloop
from rich.console import Console

from bench.candidates import CANDIDATES, RunningCandidate, StartError, start_candidate
from bench.driver import ClientConnection, close_connections, drive, open_connections
from bench.process import Cores
from bench.run import wait_for_first_call, wait_until_idle
from bench.wire import Endpoint, get_stream, listen

_GROWTH_BOUND = 2_000_000
_BATCHES = 40
_CONNECTIONS_PER_ERA = 16
_IDLE = 2000
_STREAM_WAIT = 15.0


@dataclass(frozen=True, slots=True)
class Growth:
    """RSS after each batch of a long run."""

    calls: int
    errors: int
    complaint: str | None
    samples: tuple[int, ...]

    @property
    def growth_bytes(self) -> float:
        half = len(self.samples) // 2
        return median(self.samples[half:]) - median(self.samples[:half])


class Stream(asyncio.Protocol):
    """An idle stream. `opened` resolves with the first bytes of its response."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the server closed the stream before it opened"))


async def soak(run: RunningCandidate, calls: int, console: Console) -> Growth:
    """Call in both eras concurrently. Each batch uses new connections and sessions, so that their leaks show too."""
    eras = (replace(run.endpoint, era="modern"), replace(run.endpoint, era="handshake"))
    endpoints = [endpoint for endpoint in eras for _ in range(_CONNECTIONS_PER_ERA)]
    done, errors, complaint = 0, 0, None
    samples: list[int] = []
    for batch in range(_BATCHES):
        connections = await open_connections(endpoints)
        tally = await drive(connections, seconds=600.0, limit=-(-calls // _BATCHES))
        samples.append(run.server.rss_bytes())
        done, errors, complaint = done + tally.calls, errors + tally.errors, complaint or tally.complaint
        close_connections(connections)
        if (batch + 1) % (_BATCHES // 8) == 0:
            console.print(f"{done:>9} calls, {errors} errors, RSS {samples[-1] / 1e6:.1f} MB", style="dim")
    return Growth(done, errors, complaint, tuple(samples))


async def idle_sessions(run: RunningCandidate, number: int) -> tuple[float, list[str]]:
    """Return the bytes per idle handshake session, and the ids of the sessions."""
    connection = ClientConnection(replace(run.endpoint, era="handshake"))
    await connection.open()
    before = await _idle_rss(run)
    sessions = [await connection.begin_session() for _ in range(number)]
    after = await _idle_rss(run)
    connection.close()
    return (after - before) / number, sessions


async def idle_streams(run: RunningCandidate, requests: Sequence[bytes]) -> float:
    """Return the bytes per idle open stream."""
    before = await _idle_rss(run)
    transports: list[asyncio.BaseTransport] = []
    try:
        for request in requests:
            transports.append(await _open_stream(run.endpoint, request))
        return (await _idle_rss(run) - before) / len(requests)
    finally:
        for transport in transports:
            transport.close()


async def _open_stream(endpoint: Endpoint, request: bytes) -> asyncio.BaseTransport:
    transport, stream = await asyncio.get_running_loop().create_connection(Stream, "127.0.0.1", endpoint.port)
    transport.write(request)
    head = await asyncio.wait_for(stream.opened, _STREAM_WAIT)
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"the server rejected a stream: {head[:300]!r}")
    return transport


async def _idle_rss(run: RunningCandidate) -> int:
    await wait_until_idle(run.server)
    return run.server.rss_bytes()


async def _main(options: argparse.Namespace, cores: Cores, folder: Path, console: Console) -> int:
    candidate = next(candidate for candidate in CANDIDATES if candidate.name == options.candidate)
    with start_candidate(candidate, folder / candidate.name, cores) as run:
        console.print(f"{candidate.title}: first call after {await wait_for_first_call(run):.2f} s", style="dim")
        growth = await soak(run, options.calls, console)
        console.print(f"{growth.calls} calls in both eras, {growth.errors} errors")
        console.print(f"RSS, median of the second half over the first: {growth.growth_bytes / 1e6:+.2f} MB")
        rejected = await _measure_idle(run, options.idle, console)
    if growth.complaint:
        console.print(f"first wrong response: {growth.complaint}", markup=False)
    return 1 if rejected or growth.errors or growth.growth_bytes > _GROWTH_BOUND else 0


async def _measure_idle(run: RunningCandidate, number: int, console: Console) -> bool:
    """Print the memory per idle session and stream. Returns True when the server rejected a stream."""
    each, sessions = await idle_sessions(run, number)
    console.print(f"an idle handshake session: {each:.0f} bytes ({number} open)")
    handshake = replace(run.endpoint, era="handshake")
    streams = {
        "GET": [get_stream(handshake, session) for session in sessions],
        "subscriptions/listen": [listen(run.endpoint)] * number,
    }
    rejected = False
    for name, requests in streams.items():
        try:
            each = await idle_streams(run, requests)
            console.print(f"an idle {name} stream: {each:.0f} bytes ({number} open)")
        except (OSError, TimeoutError) as exc:
            rejected = True
            console.print(f"an idle {name} stream: {exc}", style="red", markup=False)
    return rejected


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--idle", type=int, default=_IDLE, help="number of idle sessions and streams")
    parser.add_argument("--candidate", default="gatehouse", choices=["gatehouse", "sdk"])
    options = parser.parse_args()
    console = Console()
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    cores = Cores.detect()
    os.sched_setaffinity(0, {cores.driver})
    with tempfile.TemporaryDirectory(prefix="gatehouse-soak-") as folder:
        try:
            return uvloop.run(_main(options, cores, Path(folder), console))
        except (StartError, OSError, TimeoutError) as exc:
            console.print(str(exc), style="red", markup=False)
            return 1


if __name__ == "__main__":
    sys.exit(main())
