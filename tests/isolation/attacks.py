"""The ways in which tenant A misbehaves. Each function makes one step; the attacker repeats it.

`python -m tests.isolation.attacks NAME BASE KEY` attacks until its standard input ends, then prints the steps.
"""

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.flows.process import modern, modern_headers

Json = dict[str, Any]
RATE = 20.0
"""Steps per second; the control run makes as many harmless calls."""
CONCURRENCY = 48
STEP_SECONDS = 5.0
MEGABYTE = 1024 * 1024


class Attacker:
    def __init__(self, base: str, key: str) -> None:
        self.base = base
        self.key = key
        self.http = httpx.AsyncClient(
            timeout=STEP_SECONDS, verify=False, limits=httpx.Limits(max_connections=CONCURRENCY)
        )
        self._numbers = itertools.count()
        parts = urlsplit(base)
        self._address = parts.hostname or "", parts.port or 0

    def next_number(self) -> int:
        return next(self._numbers)

    async def request(
        self, method: str, params: Json | None = None, key: str | None = None, **capabilities: Any
    ) -> None:
        headers = {
            "authorization": f"Bearer {key or self.key}",
            "accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in modern_headers(method, params).items()},
        }
        body = modern(method, params, **capabilities)
        await self.http.post(f"{self.base}/mcp", json=body, headers=headers)

    async def call(self, tool: str, **arguments: Any) -> None:
        await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def post(self, content: bytes) -> None:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        await self.http.post(f"{self.base}/mcp", content=content, headers=headers)

    async def send_bytes(self, content: bytes, seconds: float) -> None:
        """Send these bytes on a connection of their own, and keep it open."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(content)
            await writer.drain()
            async with asyncio.timeout(seconds):
                while await reader.read(65536):
                    pass
        finally:
            writer.close()


Step = Callable[[Attacker], Awaitable[object]]


async def call_and_leave(attacker: Attacker) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await attacker.call("far_slow")


async def initialize(attacker: Attacker) -> None:
    client = {"name": f"client{attacker.next_number()}", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": client}
    await attacker.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode())


async def watch(attacker: Attacker) -> None:
    uris = [f"gatehouse://far/file{number}" for number in range(50)]
    flags = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    await attacker.request("subscriptions/listen", {"notifications": {**flags, "resourceSubscriptions": uris}})


async def store(attacker: Attacker) -> None:
    await attacker.call("knowledge_store", content="x" * 100_000, title=f"note {attacker.next_number()}")


def deep(levels: int) -> Json:
    return json.loads('{"a":' * levels + "1" + "}" * levels)


HARMLESS = "harmless calls"
ATTACKS: dict[str, Step] = {
    HARMLESS: lambda a: a.call("far_echo"),
    "slow tool": lambda a: a.call("far_slow"),
    "flood of calls": lambda a: asyncio.gather(*(a.call("far_echo") for _ in range(10))),
    "giant arguments": lambda a: a.call("far_echo", text="x" * 900_000),
    "arguments of many members": lambda a: a.call("far_echo", **{f"k{n}": n for n in range(9_000)}),
    "deep arguments": lambda a: a.call("far_echo", **deep(31)),
    "giant results": lambda a: a.call("far_big"),
    "endless streams": lambda a: a.call("far_stream"),
    "failing tool": lambda a: a.call("far_fail"),
    "invalid answers": lambda a: a.call("far_invalid"),
    "unknown names": lambda a: a.call(f"far_unknown{a.next_number()}"),
    "bad credentials": lambda a: a.request("tools/list", key=f"gth_{a.next_number():012d}_{'x' * 43}_000000"),
    "lists": lambda a: a.request("tools/list"),
    "subscriptions": watch,
    "sessions": initialize,
    "calls that are abandoned": call_and_leave,
    "process crashes": lambda a: a.call("proc_exit"),
    "disk filling": store,
    "invalid JSON": lambda a: a.post(b'{"a":' * 5_000),
    "huge bodies": lambda a: a.post(b"[" + b"1," * (2 * MEGABYTE) + b"1]"),
    "slow heads": lambda a: a.send_bytes(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", STEP_SECONDS),
    "pipelined requests": lambda a: a.send_bytes(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200, 0.5),
}


async def attack(name: str, base: str, key: str) -> int:
    attacker, step = Attacker(base, key), ATTACKS[name]
    slots, steps = asyncio.Semaphore(CONCURRENCY), 0
    running: set[asyncio.Task[None]] = set()

    async def run() -> None:
        with contextlib.suppress(httpx.HTTPError, OSError, TimeoutError):
            async with asyncio.timeout(STEP_SECONDS):
                await step(attacker)

    def done(task: asyncio.Task[None]) -> None:
        running.discard(task)
        slots.release()

    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    print("attacking", flush=True)
    while not ended.done():
        await slots.acquire()
        running.add(task := asyncio.create_task(run()))
        task.add_done_callback(done)
        steps += 1
        await asyncio.wait({ended}, timeout=1 / RATE)
    for task in running:
        task.cancel()
    await attacker.http.aclose()
    return steps


if __name__ == "__main__":
    print(asyncio.run(attack(*sys.argv[1:4])), flush=True)
