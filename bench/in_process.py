"""`python -m bench.in_process`: CPU of one warm `tools/call` inside the process, without sockets or load driver.

The bytes of a request go into the HTTP protocol and the response is taken from a transport in memory. The least noisy
figure that the benchmarks have: compare the minimum of two versions of the code, run in turn.
"""

import asyncio
import gc
import io
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

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
    """Counts writes and keeps the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.last = b""

    def write(self, data: Any) -> None:
        self.writes += 1
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


async def measure(folder: Path) -> list[float]:
    """Return the CPU of a call in µs, one figure per batch, sorted."""
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "server": {"port": 0},
            "backends": {"bench": {"module": "bench.echo_module"}},
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


async def _batches(protocol: asyncio.Protocol, transport: MemoryTransport, request: bytes) -> list[float]:
    async def call(times: int) -> None:
        for _ in range(times):
            before = transport.writes
            protocol.data_received(request)
            while transport.writes == before:
                await asyncio.sleep(0)

    await call(_WARM_UP)
    if b'"hello"' not in transport.last:
        raise SystemExit(f"unexpected response: {transport.last!r}")
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    figures: list[float] = []
    for _ in range(_BATCHES):
        started = time.thread_time()
        await call(_BATCH)
        figures.append((time.thread_time() - started) / _BATCH * 1e6)
    return sorted(figures)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        figures = uvloop.run(measure(Path(folder)))
    print(f"CPU per call: minimum {figures[0]:.1f} µs, median {figures[len(figures) // 2]:.1f} µs")


if __name__ == "__main__":
    main()
