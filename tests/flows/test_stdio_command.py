"""`gatehouse stdio`: the SDK's own stdio client speaks through it to a served gateway, in either era."""

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

BRIDGED = {"bridged": {"module": "tests.flows.fixtures.bridged"}, "core": {"module": "backends.core"}}
DISCOVER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


def _program(url: str, key: str) -> StdioServerParameters:
    """What Claude Desktop is told, letter by letter, started as it would start it."""
    asked = [str(COMMAND), "connect", "claude-desktop", "--json", "--url", url, "--token", key]
    entry = json.loads(subprocess.run(asked, env=environment(), capture_output=True, timeout=60).stdout)["entry"]
    return StdioServerParameters(command=entry["command"], args=entry["args"], env=environment() | entry["env"])


@asynccontextmanager
async def _bridged(program: StdioServerParameters, mode: str) -> AsyncIterator[Client]:
    transport = stdio_client(program)
    async with Client(transport, mode=mode, cache=None, elicitation_callback=_accept) as client:
        yield client


def _servers() -> set[int]:
    """The servers that this process started and that still run."""
    found: set[int] = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended while we looked
            if "stdio" in child.cmdline():
                found.add(child.pid)
    return found


async def _until(fact: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.01)


async def test_the_sdks_stdio_client_lists_calls_is_asked_and_cancels_in_either_era(start: Any, tmp_path: Path) -> None:
    before = _servers()
    async with start(backends=BRIDGED) as gateway:
        program = await asyncio.to_thread(_program, gateway.url, gateway.key)
        # Both at once, one in each era: half the time, and neither may mind the other.
        async with asyncio.TaskGroup() as both:
            for mode in ("2026-07-28", "legacy"):
                folder = tmp_path / mode
                folder.mkdir()
                both.create_task(_a_visit(program, mode, folder))
    # No orphan.
    assert _servers() <= before


async def _a_visit(program: StdioServerParameters, mode: str, folder: Path) -> None:
    told: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    async with _bridged(program, mode) as client:
        where = await client.call_tool("bridged_where", {"region": "Übersee"})
        assert where.content[0].text == "in Übersee"
        assert "core_ping" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("bridged_greet", {})).content[0].text == "Hello Ada"
        assert (await client.call_tool("bridged_steps", {}, progress_callback=progress)).content[0].text == "done"
        assert told == [1, 2, 3]
        with anyio.move_on_after(None) as scope:
            async with anyio.create_task_group() as holding:
                holding.start_soon(client.call_tool, "bridged_hold", {"folder": str(folder)})
                await _until((folder / "entered").exists)
                scope.cancel()
        await _until((folder / "cancelled").exists)
        # It is still there for others.
        assert not (await client.call_tool("core_ping", {})).is_error


def _talk(url: str, *lines: bytes, key: str = "") -> subprocess.CompletedProcess[bytes]:
    """`gatehouse stdio` with these lines on its standard input, from a file as from a pipe, to its end."""
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


async def test_what_is_wrong_is_answered_and_the_lines_after_it_are_served(start: Any) -> None:
    # Called before anything was listed: it finds out which arguments travel in headers too.
    call = _modern("tools/call", name="bridged_where", arguments={"region": "here"})
    async with start(backends=BRIDGED) as gateway:
        served, refused = await asyncio.gather(
            asyncio.to_thread(_talk, gateway.url, b"{not json\n", b"[]\n", b"\n", call, key=gateway.key),
            asyncio.to_thread(_talk, gateway.url, _modern("server/discover"), key="gth_wrong"),
        )
    answers = [json.loads(line) for line in served.stdout.splitlines()]
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, None]
    assert answers[-1]["result"]["content"][0]["text"] == "in here"
    assert served.returncode == 0
    error = json.loads(refused.stdout)["error"]
    assert error["code"] == 401
    assert "does not accept this key" in error["message"]
    assert b"does not accept this key" in refused.stderr


def test_a_line_beyond_the_cap_ends_it_with_a_word_and_without_keeping_it() -> None:
    ended = _talk("http://127.0.0.1:9/mcp", b'{"jsonrpc": "2.0", "pad": "' + b"x" * 9_000_000 + b'"}\n')
    assert json.loads(ended.stdout)["error"]["message"] == "a message is longer than 8388608 bytes"
    assert ended.returncode == 1


def test_a_gateway_that_is_away_is_an_answer_to_the_request() -> None:
    id = "seven"
    message = {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {}}
    ended = _talk("http://127.0.0.1:9/mcp", json.dumps(message).encode() + b"\n")
    answer = json.loads(ended.stdout)
    assert (answer["id"], answer["error"]["code"]) == (id, -32000)
    assert "cannot be reached" in answer["error"]["message"]


def _started(gateway: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gateway", "stdio", "--url", gateway.url]
    env = environment(GATEHOUSE_TOKEN=gateway.key)
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_nothing_keeps_it_alive_when_it_is_told_to_end_or_its_client_is_gone(start: Any, tmp_path: Path) -> None:
    async with start(backends=BRIDGED) as gateway:
        unread, alone = _started(gateway), _started(gateway)
        try:
            assert unread.stdin
            assert alone.stdin
            assert alone.stdout
            # More answers than a pipe of one page holds, and nobody takes them; then the signal.
            fcntl.fcntl(unread.stdout, fcntl.F_SETPIPE_SZ, 4096)  # type: ignore[arg-type]
            for number in range(20):
                unread.stdin.write(_modern("tools/list").replace(b'"id": 1', b'"id": %d' % number))
            unread.stdin.flush()
            # A call that never ends, of a client that ends: its writing end stays open in a child of its own, say.
            alone.stdin.write(_modern("tools/call", name="bridged_hold", arguments={"folder": str(tmp_path)}))
            alone.stdin.flush()
            await _until((tmp_path / "entered").exists)
            alone.stdout.close()
            await _until(lambda: _waiting(unread.stdout))
            unread.send_signal(signal.SIGTERM)
            for program in (unread, alone):
                assert await asyncio.to_thread(program.wait, 30) == 0
            await _until((tmp_path / "cancelled").exists)
        finally:
            for program in (unread, alone):
                program.kill()
                await asyncio.to_thread(program.wait)


def _waiting(pipe: Any) -> int:
    """Bytes in a pipe that nobody has read."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"1234"))[0]
