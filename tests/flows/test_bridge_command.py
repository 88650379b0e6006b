"""`gatehouse stdio`: the SDK's own stdio client speaks through it to a served gateway, in either era."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
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


def _bridges() -> set[int]:
    """The bridges that this process started and that still run."""
    return {child.pid for child in psutil.Process().children(recursive=True) if "stdio" in child.cmdline()}


async def _until(fact: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.01)


async def test_the_sdks_stdio_client_lists_calls_is_asked_and_cancels_in_either_era(start: Any, tmp_path: Path) -> None:
    before = _bridges()
    async with start(backends=BRIDGED) as gateway:
        program = await asyncio.to_thread(_program, gateway.url, gateway.key)
        # Both at once, one in each era: half the time, and neither may mind the other.
        async with asyncio.TaskGroup() as both:
            for mode in ("2026-07-28", "legacy"):
                folder = tmp_path / mode
                folder.mkdir()
                both.create_task(_a_visit(program, mode, folder))
    # No orphan.
    assert _bridges() <= before


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
    """The bridge with these lines on its standard input, from a file as from a pipe, to its end."""
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
    async with start(backends=BRIDGED) as gateway:
        lines = (b"{not json\n", b"[]\n", b"\n", _modern("server/discover"))
        ended = await asyncio.to_thread(_talk, gateway.url, *lines, key=gateway.key)
        answers = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, None]
        assert answers[-1]["result"]["supportedVersions"]
        assert ended.returncode == 0
        # Called before anything was listed: the bridge finds out which arguments travel in headers too.
        call = _modern("tools/call", name="bridged_where", arguments={"region": "here"})
        ended = await asyncio.to_thread(_talk, gateway.url, call, key=gateway.key)
        assert json.loads(ended.stdout)["result"]["content"][0]["text"] == "in here"
        refused = await asyncio.to_thread(_talk, gateway.url, _modern("server/discover"), key="gth_wrong")
    error = json.loads(refused.stdout)["error"]
    assert error["code"] == 401
    assert "does not accept this key" in error["message"]
    assert b"does not accept this key" in refused.stderr


def test_a_line_beyond_the_cap_ends_it_with_a_word_and_without_keeping_it() -> None:
    ended = _talk("http://127.0.0.1:9/mcp", b'{"jsonrpc": "2.0", "pad": "' + b"x" * 9_000_000 + b'"}\n')
    assert json.loads(ended.stdout)["error"]["message"] == "a message is longer than 8388608 bytes"
    assert ended.returncode == 1


@pytest.mark.parametrize("id", [7, "seven"])
def test_a_gateway_that_is_away_is_an_answer_to_the_request(id: Any) -> None:
    message = {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {}}
    ended = _talk("http://127.0.0.1:9/mcp", json.dumps(message).encode() + b"\n")
    answer = json.loads(ended.stdout)
    assert (answer["id"], answer["error"]["code"]) == (id, -32000)
    assert "cannot be reached" in answer["error"]["message"]


async def test_a_client_that_does_not_read_keeps_nothing_alive(start: Any) -> None:
    def talk(url: str, key: str) -> int:
        command = [sys.executable, "-m", "gateway", "stdio", "--url", url]
        env = environment(GATEHOUSE_TOKEN=key)
        with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
            assert bridge.stdin is not None
            # More answers than a pipe holds, and nobody takes them.
            for number in range(200):
                bridge.stdin.write(_modern("tools/list").replace(b'"id": 1', b'"id": %d' % number))
            bridge.stdin.close()
            try:
                return bridge.wait(30)
            finally:
                bridge.kill()

    async with start(backends=BRIDGED) as gateway:
        assert await asyncio.to_thread(talk, gateway.url, gateway.key) == 0
