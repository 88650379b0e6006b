"""`python -m bench.in_process`: CPU of one warm `tools/call` inside the process, without sockets or load driver.

The bytes of a request go into the HTTP protocol and the response is taken from a transport in memory. The least noisy
figure that the benchmarks have: compare the minimum of two versions of the code, run in turn.
"""

import asyncio
import gc
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from uvicorn.server import ServerState

from gateway.app import Gateway
from gateway.runner import build_config, listen
from gateway.settings import Settings
from gateway.telemetry.log import LogLines

_WARM_UP: Final = 2000
_BATCHES: Final = 60
_BATCH: Final = 200
_ADDRESS: Final = ("127.0.0.1", 1)


class MemoryTransport(asyncio.Transport):
    """Reports each write and keeps the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()
        self.last = b""

    def write(self, data: Any) -> None:
        self.written.set()
        self.last = bytes(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _ADDRESS if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return False


def _request(key: str) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "bench_echo", "arguments": {"text": "hello"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    lines = (
        "POST /mcp HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {key}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: tools/call",
        "mcp-name: bench_echo",
        f"content-length: {len(body)}",
    )
    return ("\r\n".join((*lines, "", "")) + body).encode()


class Figures(NamedTuple):
    """One figure per batch in µs, sorted: CPU of the serving thread, CPU of all threads, wall time of a call."""

    thread: list[float]
    process: list[float]
    wall: list[float]


async def measure(folder: Path, effect: int, durability: str) -> Figures:
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "server": {"port": 0},
            "backends": {"bench": {"module": "bench.echo_module", "effects": {"echo": effect}}},
            "audit": {"durability": durability},
            "limits": {"calls": "1000000000/minute"},
            "console": {"enabled": False},
        }
    )
    bound = listen(settings)
    gateway = await Gateway.open(settings, LogLines(io.StringIO()), bound.getsockname()[1])
    try:
        key, _ = await gateway.keys.create("default", "alice")
        config = build_config(gateway)
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")]
        protocol: Any = config.http_protocol_class(  # pyright: ignore[reportCallIssue]
            config=config,  # pyright: ignore[reportCallIssue]
            server_state=state,  # pyright: ignore[reportCallIssue]
            app_state={},  # pyright: ignore[reportCallIssue]
            _loop=asyncio.get_running_loop(),  # pyright: ignore[reportCallIssue]
        )
        transport = MemoryTransport()
        protocol.connection_made(transport)
        return await _batches(protocol, transport, _request(key))
    finally:
        await gateway.close()
        bound.close()


async def _batches(protocol: asyncio.Protocol, transport: MemoryTransport, request: bytes) -> Figures:
    async def call(times: int) -> None:
        for _ in range(times):
            transport.written.clear()
            protocol.data_received(request)
            await transport.written.wait()

    await call(_WARM_UP)
    if b'"hello"' not in transport.last:
        raise SystemExit(f"unexpected response: {transport.last!r}")
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    figures = Figures([], [], [])
    for _ in range(_BATCHES):
        clocks = time.thread_time, time.process_time, time.perf_counter
        started = [clock() for clock in clocks]
        await call(_BATCH)
        for kept, clock, before in zip(figures, clocks, started, strict=True):
            kept.append((clock() - before) / _BATCH * 1e6)
    return Figures(*(sorted(each) for each in figures))


_CASES: Final = (
    ("read", 0, "intent"),
    ("write, audit grouped", 2, "grouped"),
    ("write, audit intent", 2, "intent"),
    ("write, audit strict", 2, "strict"),
)


def main() -> None:
    """Measure the given cases, by default only a read: `python -m bench.in_process all` includes the writes."""
    cases = _CASES if sys.argv[1:] == ["all"] else _CASES[:1]
    for name, effect, durability in cases:
        with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
            thread, process, wall = uvloop.run(measure(Path(folder), effect, durability))
        print(
            f"{name}: CPU per call minimum {thread[0]:.1f} µs, median {thread[len(thread) // 2]:.1f} µs;"
            f" of all threads {process[0]:.1f} µs; wall time of one call after the other {wall[0]:.1f} µs"
        )


if __name__ == "__main__":
    main()
