"""`gatehouse stdio` between the stdio client of the SDK and a served gateway, in both eras."""

import asyncio
import fcntl
import json
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client

from tests.flows.process import COMMAND, ROOT, environment
from tests.mcp_results import text_of

BRIDGED = {"bridged": {"module": "tests.flows.fixtures.bridged"}, "core": {"module": "backends.core"}}
DISCOVER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


def _program(url: str, key: str) -> StdioServerParameters:
    """The server parameters of the entry that `gatehouse connect claude-desktop` prints."""
    arguments = [str(COMMAND), "connect", "claude-desktop", "--json", "--url", url, "--token", key]
    entry = json.loads(subprocess.run(arguments, env=environment(), capture_output=True, timeout=60).stdout)["entry"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=environment() | entry["env"])


@asynccontextmanager
async def _bridged(program: StdioServerParameters, mode: str) -> AsyncIterator[Client]:
    transport = stdio_client(program)
    async with Client(transport, mode=mode, cache=None, elicitation_callback=_accept) as client:
        yield client


def _servers() -> set[int]:
    """Process ids of the running stdio servers that this process started."""
    found: set[int] = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it exited meanwhile
            if "stdio" in child.cmdline():
                found.add(child.pid)
    return found


async def _wait_until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_sdk_client_lists_calls_elicits_and_cancels_in_both_eras(start: Any, tmp_path: Path) -> None:
    before = _servers()
    async with start(backends=BRIDGED) as gateway:
        program = await asyncio.to_thread(_program, gateway.url, gateway.key)
        # Both eras run concurrently and must not affect each other.
        async with asyncio.TaskGroup() as both:
            for mode in ("2026-07-28", "legacy"):
                folder = tmp_path / mode
                folder.mkdir()
                both.create_task(_use_all_features(program, mode, folder))
    # No server process is left.
    assert _servers() <= before


async def _use_all_features(program: StdioServerParameters, mode: str, folder: Path) -> None:
    reported: list[float] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    async with _bridged(program, mode) as client:
        where = await client.call_tool("bridged_where", {"region": "Übersee"})
        assert text_of(where.content[0]) == "in Übersee"
        assert "core_ping" in {tool.name for tool in (await client.list_tools()).tools}
        assert text_of((await client.call_tool("bridged_greet", {})).content[0]) == "Hello Ada"
        stepped = await client.call_tool("bridged_steps", {}, progress_callback=record_progress)
        assert text_of(stepped.content[0]) == "done"
        assert reported == [1, 2, 3]
        with anyio.move_on_after(None) as scope:
            async with anyio.create_task_group() as holding:
                holding.start_soon(client.call_tool, "bridged_hold", {"folder": str(folder)})
                await _wait_until((folder / "entered").exists)
                scope.cancel()
        await _wait_until((folder / "cancelled").exists)
        # The server still handles other calls.
        assert not (await client.call_tool("core_ping", {})).is_error


def _run_stdio(url: str, *lines: bytes, key: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run `gatehouse stdio` with these lines on standard input until it exits."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", "stdio", "--url", url],
        cwd=ROOT,
        env=environment(GATEHOUSE_TOKEN=key),
        input=b"".join(lines),
        capture_output=True,
        timeout=60,
    )


def _modern(method: str, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": DISCOVER}}
    return json.dumps(message).encode() + b"\n"


async def test_invalid_lines_are_answered_and_later_lines_are_served(start: Any) -> None:
    # Called before tools/list: the server must find out which arguments go into headers.
    call = _modern("tools/call", name="bridged_where", arguments={"region": "here"})
    async with start(backends=BRIDGED) as gateway:
        served, refused = await asyncio.gather(
            asyncio.to_thread(_run_stdio, gateway.url, b"{not json\n", b"[]\n", b"\n", call, key=gateway.key),
            asyncio.to_thread(_run_stdio, gateway.url, _modern("server/discover"), key="gth_wrong"),
        )
    answers = [json.loads(line) for line in served.stdout.splitlines()]
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, None]
    assert answers[-1]["result"]["content"][0]["text"] == "in here"
    assert served.returncode == 0
    error = json.loads(refused.stdout)["error"]
    assert error["code"] == 401
    assert "rejected the key" in error["message"]
    assert b"rejected the key" in refused.stderr


def test_oversized_line_ends_the_server_with_an_error() -> None:
    ended = _run_stdio("http://127.0.0.1:9/mcp", b'{"jsonrpc": "2.0", "pad": "' + b"x" * 9_000_000 + b'"}\n')
    assert json.loads(ended.stdout)["error"]["message"] == "a message is longer than 8388608 bytes"
    assert ended.returncode == 1


def test_unreachable_gateway_is_reported_in_the_response() -> None:
    id = "seven"
    message = {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {}}
    ended = _run_stdio("http://127.0.0.1:9/mcp", json.dumps(message).encode() + b"\n")
    answer = json.loads(ended.stdout)
    assert (answer["id"], answer["error"]["code"]) == (id, -32000)
    assert "is unreachable" in answer["error"]["message"]


def _start_stdio(gateway: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gateway", "stdio", "--url", gateway.url]
    env = environment(GATEHOUSE_TOKEN=gateway.key)
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_server_exits_on_signal_or_disconnect_with_open_requests(start: Any, tmp_path: Path) -> None:
    async with start(backends=BRIDGED) as gateway:
        blocked, disconnected = _start_stdio(gateway), _start_stdio(gateway)
        try:
            assert blocked.stdin
            assert disconnected.stdin
            assert disconnected.stdout
            # More responses than the pipe holds, without a reader; then the signal.
            fcntl.fcntl(blocked.stdout, fcntl.F_SETPIPE_SZ, 4096)  # type: ignore[arg-type]
            for number in range(20):
                blocked.stdin.write(_modern("tools/list").replace(b'"id": 1', b'"id": %d' % number))
            blocked.stdin.flush()
            # A call that never ends; the client closes only its reading end.
            disconnected.stdin.write(_modern("tools/call", name="bridged_hold", arguments={"folder": str(tmp_path)}))
            disconnected.stdin.flush()
            await _wait_until((tmp_path / "entered").exists)
            disconnected.stdout.close()
            await _wait_until(lambda: _unread_bytes(blocked.stdout))
            blocked.send_signal(signal.SIGTERM)
            for program in (blocked, disconnected):
                assert await asyncio.to_thread(program.wait, 30) == 0
            await _wait_until((tmp_path / "cancelled").exists)
        finally:
            for program in (blocked, disconnected):
                program.kill()
                await asyncio.to_thread(program.wait)


def _unread_bytes(pipe: Any) -> int:
    """Number of blocked bytes in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"1234"))[0]
