"""Three replicas behind a load balancer, under mixed load in both eras: rolling restart, and one replica killed."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.faults.balancer import Balancer
from tests.flows.process import COMMAND, HANDSHAKE, environment, modern, modern_headers, run, write_settings
from tests.servers import Valkey

Json = dict[str, Any]
PLAIN = {"plain": {"module": "tests.flows.fixtures.plain"}}
GENEROUS: Json = {"limits": {"calls": "1000000/minute"}, "streams": {"per_principal": 100}}


@dataclass
class ReplicaResult:
    calls: int = 0
    failed: list[str] = field(default_factory=list[str])
    streams: int = 0
    resumed: int = 0
    broken: int = 0
    recovered: float = 0.0
    """Seconds from the kill until every replica was ready again."""
    in_flight: int = 0
    """Requests that the killed replica had in progress."""
    lost_elsewhere: int = 0
    """Requests to other replicas that got no response."""


class Replica:
    """A gateway process that serves on `port`; `popen` starts it and can be called again."""

    def __init__(self, port: int, popen: Callable[[], "subprocess.Popen[bytes]"]) -> None:
        self.port = port
        self._popen = popen
        self.start()

    def start(self) -> None:
        self.process = self._popen()

    async def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        while self.process.poll() is None:
            await asyncio.sleep(0.02)


@dataclass
class Site:
    """Running replicas and an API key for them."""

    replicas: list[Replica]
    key: str


@contextmanager
def plain_site(folder: Path) -> Iterator[Site]:
    """Three processes that share a folder and a Valkey server."""
    valkey = Valkey()
    write_settings(
        folder,
        backends=PLAIN,
        bus={"url": valkey.url},
        server={"drain_grace": 1.0, "drain_seconds": 10},
        **GENEROUS,
    )
    key = run(folder, "key", "create", "--tenant", "default", "--subject", "load").stdout.strip()

    def serve(port: int) -> "subprocess.Popen[bytes]":
        with (folder / f"{port}.log").open("ab") as log:
            command = [str(COMMAND), "serve", "--port", str(port)]
            return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=log)

    ports = [free_port() for _ in range(3)]
    try:
        yield Site([Replica(port, partial(serve, port)) for port in ports], key)
    finally:
        valkey.stop()


SiteFactory = Callable[[Path], AbstractContextManager[Site]]


async def restart_replicas(folder: Path, seconds: float, site: SiteFactory = plain_site) -> ReplicaResult:
    """Restart the replicas one after another, for that many seconds and at least once each."""

    async def disturb(replicas: list[Replica], balancer: Balancer, deadline: float, result: ReplicaResult) -> None:
        rounds = 0
        while time.monotonic() < deadline or rounds < len(replicas):
            replica = replicas[rounds % len(replicas)]
            await replica.stop()
            replica.start()
            await asyncio.sleep(0.3)
            await balancer.ready(len(replicas))
            rounds += 1

    return await _under_load(site(folder), seconds, disturb)


async def kill_replica(folder: Path, seconds: float) -> ReplicaResult:
    """Kill one replica with SIGKILL and start it again."""

    async def disturb(replicas: list[Replica], balancer: Balancer, deadline: float, result: ReplicaResult) -> None:
        await asyncio.sleep(seconds / 3)
        port = replicas[0].port
        in_progress, served_before = balancer.in_progress(port), balancer.served[port]
        started = time.monotonic()
        await replicas[0].stop(signal.SIGKILL)
        replicas[0].start()
        await asyncio.sleep(0.3)
        # Requests may connect until the system closes the socket; the new process is not ready that soon.
        result.in_flight = in_progress + balancer.served[port] - served_before
        await balancer.ready(len(replicas))
        result.recovered = time.monotonic() - started
        await asyncio.sleep(max(0.0, deadline - time.monotonic()))
        result.lost_elsewhere = sum(lost for each, lost in balancer.unanswered.items() if each != port)

    return await _under_load(plain_site(folder), seconds, disturb)


async def _under_load(site: AbstractContextManager[Site], seconds: float, disturb: Any) -> ReplicaResult:
    result = ReplicaResult()
    with site as running:
        try:
            await _load(running.replicas, running.key, seconds, disturb, result)
        finally:
            for replica in running.replicas:
                replica.process.kill()
                replica.process.wait()
    return result


async def _load(replicas: list[Replica], key: str, seconds: float, disturb: Any, result: ReplicaResult) -> None:
    async with Balancer([each.port for each in replicas]) as balancer:
        async with asyncio.timeout(120):
            await balancer.ready(len(replicas))
        deadline = time.monotonic() + seconds
        stop = asyncio.Event()
        async with httpx.AsyncClient(timeout=20, verify=False, trust_env=False) as http:
            base = f"http://127.0.0.1:{balancer.port}/mcp"
            load = [
                *(_modern(http, base, key, stop, result) for _ in range(3)),
                *(_handshake(http, base, key, stop, result) for _ in range(3)),
                *(_keep_stream_open(http, base, key, stop, result) for _ in range(3)),
            ]
            tasks = [asyncio.create_task(each) for each in load]
            await disturb(replicas, balancer, deadline, result)
            stop.set()
            await asyncio.wait(tasks, timeout=15)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _modern(http: httpx.AsyncClient, url: str, key: str, stop: asyncio.Event, result: ReplicaResult) -> None:
    params = {"name": "plain_echo", "arguments": {"text": "hello"}}
    headers = {**_auth(key), **modern_headers("tools/call", params)}
    while not stop.is_set():
        await _send_call(http, url, modern("tools/call", params), headers, result, '"hello"')
        await asyncio.sleep(0.01)


async def _handshake(http: httpx.AsyncClient, url: str, key: str, stop: asyncio.Event, result: ReplicaResult) -> None:
    headers, number = await _session(http, url, key), 0
    while not stop.is_set():
        number += 1
        params = {"name": "plain_count", "arguments": {"to": 3}, "_meta": {"progressToken": number}}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        await _send_call(http, url, message, headers, result, "counted to 3")
        await asyncio.sleep(0.01)


async def _send_call(
    http: httpx.AsyncClient, url: str, message: Json, headers: Json, result: ReplicaResult, expected: str
) -> None:
    result.calls += 1
    try:
        response = await http.post(url, json=message, headers=headers)
        if expected not in response.text:
            result.failed.append(f"{response.status_code} {response.text[-200:]}")
    except httpx.HTTPError as exc:
        result.failed.append(repr(exc))


async def _keep_stream_open(
    http: httpx.AsyncClient, url: str, key: str, stop: asyncio.Event, result: ReplicaResult
) -> None:
    """Keep a stream open: resume it when it ends, or open a new one if it cannot be resumed."""
    headers, last = await _session(http, url, key), ""
    headers["accept"] = "text/event-stream"
    while not stop.is_set():
        result.streams += 1
        extra_headers = {"last-event-id": last} if last else {}
        try:
            async with http.stream("GET", url, headers={**headers, **extra_headers}) as response:
                if response.status_code == 404 and last:
                    last = ""
                    continue
                if response.status_code != 200:
                    result.broken += 1
                    await asyncio.sleep(0.1)
                    continue
                result.resumed += bool(last)
                reading = asyncio.create_task(_read(response))
                stopped = asyncio.create_task(stop.wait())
                await asyncio.wait((reading, stopped), return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if stop.is_set():
                    reading.cancel()
                    return
                last = reading.result()
        except httpx.HTTPError:
            result.broken += 1
            last = ""
        await asyncio.sleep(0.05)


async def _read(response: httpx.Response) -> str:
    last = ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            last = line[3:].strip()
    return last


async def _session(http: httpx.AsyncClient, url: str, key: str) -> Json:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    response = await http.post(url, json=message, headers=_auth(key))
    return {**_auth(key), "mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}


def _auth(key: str) -> Json:
    return {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]
