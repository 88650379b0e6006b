"""Many calls with sessions, streams and errors, in both eras: memory, descriptors and tasks of the gateway stay put."""

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.driver import close_connections, drive, open_connections
from bench.wire import Endpoint, Era
from tests.faults.client import Client, connections
from tests.faults.kills import UNLIMITED
from tests.flows.process import HANDSHAKE, Served, serving, write_settings

BATCHES = 50
LANES = 16
MIXED = 20
"""One call in so many is of another kind: wrong, reporting progress, or a session with a stream that comes and goes."""


@dataclass(frozen=True)
class Sample:
    calls: int
    rss: int
    files: int
    tasks: int


@dataclass
class Soaked:
    calls: int = 0
    errors: int = 0
    """Calls that were wrong on purpose, and refused."""
    failed: list[str] = field(default_factory=list[str])
    sessions: int = 0
    samples: list[Sample] = field(default_factory=list[Sample])
    seconds: float = 0.0

    def growth(self, what: str) -> float:
        """The median of the second half over that of the first."""
        values = [getattr(each, what) for each in self.samples]
        half = len(values) // 2
        return statistics.median(values[half:]) - statistics.median(values[:half])


async def soak(folder: Path, calls: int) -> Soaked:
    write_settings(
        folder,
        backends={"plain": {"module": "tests.flows.fixtures.plain"}, "bench": {"module": "bench.echo_module"}},
        limits=UNLIMITED,
        streams={"per_principal": 100},
        log={"format": "json", "level": "error"},
        audit={"max_records": 100_000},
    )
    soaked, began = Soaked(), time.monotonic()
    with serving(folder) as served:
        async with connections(LANES * 2) as http:
            lanes = await open_connections(
                [Endpoint(served.port, _era(lane), "bench_echo", served.key) for lane in range(LANES)]
            )
            for batch in range(BATCHES):
                mixed = max(40, calls // BATCHES // MIXED)
                tally = await drive(lanes, seconds=3600, limit=calls // BATCHES - mixed)
                soaked.calls += tally.calls
                soaked.failed += [str(tally.complaint)] * tally.errors
                await asyncio.gather(*(_lane(http, served, lane, mixed // 4, soaked) for lane in range(4)))
                soaked.samples.append(await _sample(http, served, soaked.calls))
                if batch % 10 == 9:
                    print(f"     {soaked.calls} calls, {soaked.samples[-1]}", flush=True)
            close_connections(lanes)
    soaked.seconds = time.monotonic() - began
    return soaked


def _era(lane: int) -> Era:
    return "modern" if lane % 2 else "handshake"


async def _lane(http: httpx.AsyncClient, served: Served, lane: int, share: int, soaked: Soaked) -> None:
    client = Client(http, served.url, served.key, _era(lane))
    await client.open()
    for number in range(share):
        soaked.calls += 1
        match number % 5:
            case 0:
                await _visit(http, served)
                soaked.sessions += 1
                continue
            case 1:
                said = await client.call("plain_echo", {"text": 5})
                soaked.errors += 1
                good = "isError" in str(said.answer) or "error" in said.answer
            case 2:
                said = await client.call("plain_no_such_tool")
                soaked.errors += 1
                good = "error" in said.answer
            case 3:
                said = await client.call("plain_count", {"to": 2}, told=True)
                good = "counted to 2" in str(said.answer)
            case _:
                said = await client.call("plain_echo", {"text": f"{lane}/{number}"})
                good = f"{lane}/{number}" in str(said.answer)
        if not good:
            soaked.failed.append(str(said.answer)[:200])


async def _visit(http: httpx.AsyncClient, served: Served) -> None:
    """A session that opens its stream, and goes."""
    headers = {"authorization": f"Bearer {served.key}", "accept": "application/json, text/event-stream"}
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
    message: Any = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = await http.post(served.url, json=message, headers=headers)
    headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
    async with http.stream("GET", served.url, headers={**headers, "accept": "text/event-stream"}) as stream:
        assert stream.status_code == 200, stream.status_code
    assert (await http.delete(served.url, headers=headers)).status_code in (200, 202, 204)


async def _sample(http: httpx.AsyncClient, served: Served, calls: int) -> Sample:
    text = (await http.get(f"{served.base}/metrics")).text
    tasks = next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("gatehouse_tasks "))
    files = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
    return Sample(calls, served.rss(), files, int(tasks))


def draw(soaked: Soaked, to: Path) -> None:
    """The samples as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(8, 7))
    at = [each.calls for each in soaked.samples]
    rows = (
        ("resident memory, MB", [each.rss / 1e6 for each in soaked.samples]),
        ("descriptors", [each.files for each in soaked.samples]),
        ("tasks", [each.tasks for each in soaked.samples]),
    )
    for axis, (title, values) in zip(axes, rows, strict=True):
        axis.plot(at, values, linewidth=1.5)
        axis.set_ylabel(title)
        axis.set_ylim(0, max(values) * 1.2)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("calls")
    figure.suptitle(f"{soaked.calls:,} calls, {soaked.errors:,} of them wrong on purpose, {soaked.sessions:,} sessions")
    figure.tight_layout()
    figure.savefig(to, dpi=110)
