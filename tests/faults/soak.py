"""Soak test: calls, sessions, streams and errors in both eras; memory, descriptors and tasks must not grow."""

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
from tests.faults.server_kills import UNLIMITED
from tests.flows.process import HANDSHAKE, Served, serving, write_settings

BATCHES = 50
CONNECTIONS = 16
MIXED_SHARE = 20
"""One call in this many is not a plain call: invalid, with progress, or a session that opens and closes a stream."""


@dataclass(frozen=True)
class Sample:
    calls: int
    rss: int
    files: int
    tasks: int


@dataclass
class SoakResult:
    calls: int = 0
    errors: int = 0
    """Calls that were invalid on purpose and rejected."""
    failed: list[str] = field(default_factory=list[str])
    sessions: int = 0
    samples: list[Sample] = field(default_factory=list[Sample])
    seconds: float = 0.0

    def growth(self, metric: str) -> float:
        """The median of the second half minus that of the first."""
        values = [getattr(each, metric) for each in self.samples]
        half = len(values) // 2
        return statistics.median(values[half:]) - statistics.median(values[:half])


async def soak(folder: Path, calls: int) -> SoakResult:
    write_settings(
        folder,
        backends={"plain": {"module": "tests.flows.fixtures.plain"}, "bench": {"module": "bench.echo_module"}},
        limits=UNLIMITED,
        streams={"per_principal": 100},
        log={"format": "json", "level": "error"},
        audit={"max_records": 100_000},
    )
    result, started = SoakResult(), time.monotonic()
    with serving(folder) as served:
        async with connections(CONNECTIONS * 2) as http:
            driver_connections = await open_connections(
                [Endpoint(served.port, _era(worker), "bench_echo", served.key) for worker in range(CONNECTIONS)]
            )
            for batch in range(BATCHES):
                mixed_calls = max(40, calls // BATCHES // MIXED_SHARE)
                tally = await drive(driver_connections, seconds=3600, limit=calls // BATCHES - mixed_calls)
                result.calls += tally.calls
                result.failed += [str(tally.complaint)] * tally.errors
                await asyncio.gather(*(_worker(http, served, worker, mixed_calls // 4, result) for worker in range(4)))
                result.samples.append(await _sample(http, served, result.calls))
                if batch % 10 == 9:
                    print(f"     {result.calls} calls, {result.samples[-1]}", flush=True)
            close_connections(driver_connections)
    result.seconds = time.monotonic() - started
    return result


def _era(worker: int) -> Era:
    return "modern" if worker % 2 else "handshake"


async def _worker(
    http: httpx.AsyncClient, served: Served, worker: int, calls_per_worker: int, result: SoakResult
) -> None:
    client = Client(http, served.url, served.key, _era(worker))
    await client.open()
    for number in range(calls_per_worker):
        result.calls += 1
        match number % 5:
            case 0:
                await _open_and_close_session(http, served)
                result.sessions += 1
                continue
            case 1:
                call_result = await client.call("plain_echo", {"text": 5})
                result.errors += 1
                passed = "isError" in str(call_result.response) or "error" in call_result.response
            case 2:
                call_result = await client.call("plain_no_such_tool")
                result.errors += 1
                passed = "error" in call_result.response
            case 3:
                call_result = await client.call("plain_count", {"to": 2}, with_notifications=True)
                passed = "counted to 2" in str(call_result.response)
            case _:
                call_result = await client.call("plain_echo", {"text": f"{worker}/{number}"})
                passed = f"{worker}/{number}" in str(call_result.response)
        if not passed:
            result.failed.append(str(call_result.response)[:200])


async def _open_and_close_session(http: httpx.AsyncClient, served: Served) -> None:
    """Open a session and its stream, and close both."""
    headers = {"authorization": f"Bearer {served.key}", "accept": "application/json, text/event-stream"}
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
    message: Any = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    response = await http.post(served.url, json=message, headers=headers)
    headers |= {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
    async with http.stream("GET", served.url, headers={**headers, "accept": "text/event-stream"}) as stream:
        assert stream.status_code == 200, stream.status_code
    assert (await http.delete(served.url, headers=headers)).status_code in (200, 202, 204)


async def _sample(http: httpx.AsyncClient, served: Served, calls: int) -> Sample:
    text = (await http.get(f"{served.base}/metrics")).text
    tasks = next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("gatehouse_tasks "))
    files = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
    return Sample(calls, served.rss(), files, int(tasks))


def plot(result: SoakResult, path: Path) -> None:
    """Plot the samples to a file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(8, 7))
    x_values = [each.calls for each in result.samples]
    rows = (
        ("resident memory, MB", [each.rss / 1e6 for each in result.samples]),
        ("descriptors", [each.files for each in result.samples]),
        ("tasks", [each.tasks for each in result.samples]),
    )
    for axis, (title, values) in zip(axes, rows, strict=True):
        axis.plot(x_values, values, linewidth=1.5)
        axis.set_ylabel(title)
        axis.set_ylim(0, max(values) * 1.2)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("calls")
    figure.suptitle(f"{result.calls:,} calls, {result.errors:,} invalid on purpose, {result.sessions:,} sessions")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
