"""`python -m bench.soak`: does memory stay put over a million calls, and what do idle sessions and streams hold?"""

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

from bench.candidates import CANDIDATES, NotStarted, Running, running
from bench.driver import Lane, close_lanes, drive, open_lanes
from bench.process import Cores
from bench.run import first_call, quiet
from bench.wire import Door, get_stream, listen

_GROWTH_BOUND = 2_000_000
_BATCHES = 40
_LANES_PER_ERA = 16
_IDLE = 2000
_STREAM_WAIT = 15.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory after each batch of a long run, and how much the second half holds over the first."""

    calls: int
    errors: int
    complaint: str | None
    samples: tuple[int, ...]

    @property
    def bytes_over(self) -> float:
        half = len(self.samples) // 2
        return median(self.samples[half:]) - median(self.samples[:half])


class Stream(asyncio.Protocol):
    """An open stream that only waits; `opened` is done with the head of its response."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the server closed the stream before it opened"))


async def soak(run: Running, calls: int, console: Console) -> Growth:
    """Both eras at once, each batch on connections and sessions of its own, so that theirs would show too."""
    eras = (replace(run.door, era="modern"), replace(run.door, era="handshake"))
    doors = [door for door in eras for _ in range(_LANES_PER_ERA)]
    done, errors, complaint = 0, 0, None
    samples: list[int] = []
    for batch in range(_BATCHES):
        lanes = await open_lanes(doors)
        tally = await drive(lanes, seconds=600.0, limit=-(-calls // _BATCHES))
        samples.append(run.server.rss_bytes())
        done, errors, complaint = done + tally.calls, errors + tally.errors, complaint or tally.complaint
        close_lanes(lanes)
        if (batch + 1) % (_BATCHES // 8) == 0:
            console.print(f"{done:>9} calls, {errors} errors, RSS {samples[-1] / 1e6:.1f} MB", style="dim")
    return Growth(done, errors, complaint, tuple(samples))


async def idle_sessions(run: Running, number: int) -> tuple[float, list[str]]:
    """Bytes that each of `number` handshake sessions holds while nothing uses it, and the sessions."""
    lane = Lane(replace(run.door, era="handshake"))
    await lane.open()
    before = await _settled_rss(run)
    sessions = [await lane.begin_session() for _ in range(number)]
    after = await _settled_rss(run)
    lane.close()
    return (after - before) / number, sessions


async def idle_streams(run: Running, requests: Sequence[bytes]) -> float:
    """Bytes that each open stream holds while nothing is sent on it."""
    before = await _settled_rss(run)
    transports: list[asyncio.BaseTransport] = []
    try:
        for request in requests:
            transports.append(await _open_stream(run.door, request))
        return (await _settled_rss(run) - before) / len(requests)
    finally:
        for transport in transports:
            transport.close()


async def _open_stream(door: Door, request: bytes) -> asyncio.BaseTransport:
    transport, stream = await asyncio.get_running_loop().create_connection(Stream, "127.0.0.1", door.port)
    transport.write(request)
    head = await asyncio.wait_for(stream.opened, _STREAM_WAIT)
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"a stream was refused: {head[:300]!r}")
    return transport


async def _settled_rss(run: Running) -> int:
    await quiet(run.server)
    return run.server.rss_bytes()


async def _main(options: argparse.Namespace, cores: Cores, folder: Path, console: Console) -> int:
    candidate = next(candidate for candidate in CANDIDATES if candidate.name == options.candidate)
    with running(candidate, folder / candidate.name, cores) as run:
        console.print(f"{candidate.title}: first call after {await first_call(run):.2f} s", style="dim")
        growth = await soak(run, options.calls, console)
        console.print(f"{growth.calls} calls in both eras, {growth.errors} errors")
        console.print(f"RSS, median of the second half over the first: {growth.bytes_over / 1e6:+.2f} MB")
        refused = await _idle(run, options.idle, console)
    if growth.complaint:
        console.print(f"the first wrong answer: {growth.complaint}", markup=False)
    return 1 if refused or growth.errors or growth.bytes_over > _GROWTH_BOUND else 0


async def _idle(run: Running, number: int, console: Console) -> bool:
    """Print what each idle thing holds. True when the server refused to hold any of them."""
    each, sessions = await idle_sessions(run, number)
    console.print(f"an idle handshake session: {each:.0f} bytes ({number} open)")
    handshake = replace(run.door, era="handshake")
    streams = {
        "GET": [get_stream(handshake, session) for session in sessions],
        "subscriptions/listen": [listen(run.door)] * number,
    }
    refused = False
    for name, requests in streams.items():
        try:
            each = await idle_streams(run, requests)
            console.print(f"an idle {name} stream: {each:.0f} bytes ({number} open)")
        except (OSError, TimeoutError) as exc:
            refused = True
            console.print(f"an idle {name} stream: {exc}", style="red", markup=False)
    return refused


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--idle", type=int, default=_IDLE, help="how many idle sessions and streams")
    parser.add_argument("--candidate", default="gatehouse", choices=["gatehouse", "sdk"])
    options = parser.parse_args()
    console = Console()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cores = Cores.of_this_machine()
    os.sched_setaffinity(0, {cores.driver})
    with tempfile.TemporaryDirectory(prefix="gatehouse-soak-") as folder:
        try:
            return uvloop.run(_main(options, cores, Path(folder), console))
        except (NotStarted, OSError, TimeoutError) as exc:
            console.print(str(exc), style="red", markup=False)
            return 1


if __name__ == "__main__":
    sys.exit(main())
