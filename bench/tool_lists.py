"""`python -m bench.tool_lists`: CPU of `tools/list` with 1,000 tools, shaped and not, and of building their views.

Each request goes through the HTTP protocol in memory, as in `bench.in_process`, and gets all tools on one page.
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

from bench.in_process import MemoryTransport
from gateway.app import Gateway
from gateway.contract import Caller
from gateway.runner import build_config, listen
from gateway.settings import Settings
from gateway.telemetry.log import LogLines

_BATCHES: Final = 40
_BATCH: Final = 25
_RULES: Final = [
    {"deny": "bench.delete_*"},
    *(
        {"allow": f"bench.create_{number}", "name": f"report_{number}", "title": "Report"}
        | {"description": "Report a problem.", "set": {"project": "SUP"}, "hide": ["labels"]}
        for number in range(50)
    ),
    {"allow": "bench.*", "set": {"project": "SUP"}, "hide": ["labels"]},
]
_PATHS: Final = {"/mcp": "whole list", "/mcp/shaped": "1,000 shaped tools", "/mcp/searched": "search"}


def _request(key: str, path: str) -> bytes:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    lines = (
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {key}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: tools/list",
        f"content-length: {len(body)}",
    )
    return ("\r\n".join((*lines, "", "")) + body).encode()


async def measure(folder: Path) -> dict[str, tuple[float, float, int]]:
    """CPU in µs of a request, CPU in ms of building the view, and bytes of the response, by path."""
    settings = Settings.model_validate(
        {
            "data_dir": folder,
            "server": {"port": 0},
            "backends": {"bench": {"module": "bench.tool_list_module"}},
            "servers": {
                "shaped": {"backends": ["bench"], "tools": _RULES},
                "searched": {"backends": ["bench"], "tools": {"view": "search", "rules": _RULES}},
            },
            "catalogue": {"page_size": 1000},
            "limits": {"calls": "1000000000/minute"},
            "console": {"enabled": False},
        }
    )
    bound = listen(settings)
    gateway = await Gateway.open(settings, LogLines(io.StringIO()), bound.getsockname()[1])
    try:
        key, info = await gateway.keys.create("default", "alice")
        caller = Caller("default", "alice", scopes=info.scopes)
        found: dict[str, tuple[float, float, int]] = {}
        for path in _PATHS:
            started = time.thread_time()
            view = gateway.catalogue.view(caller, path)
            assert view is not None
            build = (time.thread_time() - started) * 1e3
            micros, size = await _serve(gateway, _request(key, path))
            found[path] = (micros, build, size)
        return found
    finally:
        await gateway.close()
        bound.close()


async def _serve(gateway: Gateway, request: bytes) -> tuple[float, int]:
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

    async def call(times: int) -> None:
        for _ in range(times):
            transport.written.clear()
            protocol.data_received(request)
            await transport.written.wait()

    await call(_BATCH)
    if b'"tools":[' not in transport.last:
        raise SystemExit(f"unexpected response: {transport.last[:500]!r}")
    gc.collect()
    figures: list[float] = []
    for _ in range(_BATCHES):
        started = time.thread_time()
        await call(_BATCH)
        figures.append((time.thread_time() - started) / _BATCH * 1e6)
    return min(figures), len(transport.last)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        figures = uvloop.run(measure(Path(folder)))
    for path, (micros, build, size) in figures.items():
        print(f"{_PATHS[path]}: tools/list {micros:.0f} µs, {size:,} bytes; building the view {build:.1f} ms")


if __name__ == "__main__":
    main()
