"""Prints the path of one `tools/call` through the gateway: every function, from the socket read to the socket write.

`python -m bench.walk` starts a gateway in this process, warms it up, and records one call of an in-process tool with
`sys.setprofile`. ARCHITECTURE.md shows its output. `--counts` prints only the totals.
"""

import asyncio
import asyncio.selector_events
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gateway.app import Gateway
from gateway.runner import listen, serve_in_process
from gateway.settings import Settings
from gateway.telemetry.log import LogLines

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = tuple(str(_ROOT / name) + os.sep for name in ("gateway", "bench"))
_FIRST = "data_received"
# asyncio's own loop, whose transport is written in Python: uvloop's write is invisible to the profiler.
_SOCKET_WRITE = asyncio.selector_events._SelectorSocketTransport.write.__code__  # pyright: ignore
_MODERN = "2026-07-28"
_WARM_UP = 200


@dataclass
class Walk:
    """The functions that one call enters, in the order of their first entry."""

    steps: list[tuple[int, CodeType]] = field(default_factory=list[tuple[int, CodeType]])
    _seen: set[CodeType] = field(default_factory=set[CodeType])
    _depth: int = 0
    _recording: bool = False
    finished: bool = False

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Record functions between `data_received` and the write to the transport; a hook for `sys.setprofile`."""
        if event == "call" and self._recording and frame.f_code is _SOCKET_WRITE:
            self._recording, self.finished = False, True
            sys.setprofile(None)
            return
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(_PACKAGES):
            return
        if event == "return":
            self._depth = max(0, self._depth - 1)
            return
        code = frame.f_code
        if code.co_name == _FIRST:
            self._recording, self._depth = True, 0
        if self._recording and code not in self._seen and not code.co_name.startswith("<"):
            self._seen.add(code)
            self.steps.append((self._depth, code))
        self._depth += 1

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(_relative(code) for _, code in self.steps if _is_gateway(code)))

    @property
    def packages(self) -> list[str]:
        return list(dict.fromkeys(str(Path(file).parent) for file in self.files))

    @property
    def functions(self) -> int:
        return sum(_is_gateway(code) for _, code in self.steps)


def _is_gateway(code: CodeType) -> bool:
    return _relative(code).startswith("gateway/")


def _relative(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(_ROOT))


async def _request(port: int, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one `tools/call` of the newest revision and read its response."""
    params = {
        "name": "bench_echo",
        "arguments": {"text": "hello"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": _MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
        f"mcp-protocol-version: {_MODERN}\r\nmcp-method: tools/call\r\nmcp-name: bench_echo\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"the call failed: {status.decode().strip()}")
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)


async def record() -> Walk:
    """Serve one echo tool, warm it up, and return the walk of one call."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {
                "data_dir": Path(folder) / "data",
                "server": {"port": 0},
                "backends": {"bench": {"module": "bench.echo_module"}},
                "limits": {"calls": "1000000000/minute"},
            }
        )
        bound = listen(settings)
        port = bound.getsockname()[1]
        gateway = await Gateway.open(settings, LogLines(io.StringIO()), port)
        try:
            key, _ = await gateway.keys.create("default", "alice")
            async with serve_in_process(gateway, bound):
                # A child process sends, so that only the gateway's functions run here.
                return await _profiled(port, key)
        finally:
            await gateway.close()


async def _profiled(port: int, key: str) -> Walk:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.walk", "--client", str(port), key,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=_ROOT,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    await client.stdout.readline()  # the gateway is warm
    walk = Walk()
    sys.setprofile(walk.profile)
    client.stdin.write(b"go\n")
    await client.stdin.drain()
    await client.stdout.readline()
    sys.setprofile(None)
    client.stdin.close()
    await client.wait()
    return walk


async def _client(port: int, key: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(_WARM_UP):
        await _request(port, key, reader, writer)
    print("warm", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await _request(port, key, reader, writer)
    print("done", flush=True)


def show(walk: Walk, line: Callable[[str], None] = print) -> None:
    """Print the walk as an indented list, a file name wherever the file changes."""
    width = max(depth * 2 + len(code.co_qualname) for depth, code in walk.steps) + 2
    for depth, code in walk.steps:
        line(f"{'  ' * depth + code.co_qualname:<{width}}{_relative(code)}:{code.co_firstlineno}")


def main() -> None:
    if "--client" in sys.argv:
        asyncio.run(_client(int(sys.argv[-2]), sys.argv[-1]))
        return
    walk = asyncio.run(record())
    if not walk.finished:
        raise SystemExit("the walk did not reach the socket write")
    if "--counts" not in sys.argv:
        show(walk)
    print(f"{walk.functions} functions, {len(walk.files)} files, {len(walk.packages)} packages")


if __name__ == "__main__":
    main()
