"""Tasks that run on three replicas while each replica is killed in turn and started again."""

import asyncio
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.faults.replicas import Replica, free_port
from tests.flows.killable_server import killable_server
from tests.flows.process import COMMAND, HANDSHAKE, environment, run, write_settings
from tests.servers import Valkey

Json = dict[str, Any]
TERMINAL = ("completed", "failed", "cancelled")
CALL_SECONDS = 2.0
"""How long each call runs at the backend."""


@dataclass
class TaskKillResult:
    """How the tasks ended. `problems` lists every task that broke a promise."""

    tasks: int = 0
    completed: int = 0
    failed: int = 0
    repeated: int = 0
    """Idempotent calls that ran more than once."""
    taken_over: int = 0
    """Tasks that another replica took over, counted in the logs."""
    kills: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list[str])


async def kill_task_replicas(folder: Path, tasks: int, kills: int, replicas: int = 3) -> TaskKillResult:
    """Create the tasks on all replicas, kill `kills` of these one after another, and check how each task ended."""
    result = TaskKillResult(tasks)
    valkey = Valkey()
    try:
        with killable_server("-m", "tests.faults.counting_server") as server:
            await server.wait_until_listening()
            _write_settings(folder, valkey.url, server.port)
            key = run(folder, "key", "create", "--tenant", "default", "--subject", "load").stdout.strip()
            running = [Replica(port, partial(_serve, folder, port)) for port in [free_port() for _ in range(replicas)]]
            try:
                await _run_tasks(running, key, kills, result)
            finally:
                for replica in running:
                    replica.process.kill()
                    replica.process.wait()
            logs = "".join(file.read_text(errors="replace") for file in folder.glob("*.log"))
            result.taken_over = logs.count("taken over, attempt")
    finally:
        valkey.stop()
    return result


def _write_settings(folder: Path, bus: str, port: int) -> None:
    backend: Json = {"url": f"http://127.0.0.1:{port}/mcp", "allow_private": True, "effects": {"again": 1}}
    write_settings(
        folder,
        backends={"far": backend},
        bus={"url": bus},
        tasks={"tools": ["far.*"], "per_principal": 1000},
        shares={"per_principal": 12, "per_tenant": 12},
        limits={"calls": "1000000/minute"},
    )


def _serve(folder: Path, port: int) -> "subprocess.Popen[bytes]":
    with (folder / f"{port}.log").open("ab") as log:
        command = [str(COMMAND), "serve", "--port", str(port)]
        return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=log)


async def _run_tasks(replicas: list[Replica], key: str, kills: int, result: TaskKillResult) -> None:
    async with httpx.AsyncClient(timeout=30, verify=False, trust_env=False) as http:
        client = _Client(http, key)
        for replica in replicas:
            await client.wait_ready(replica)
        await client.initialize(replicas[0])
        started = time.monotonic()
        names = {f"{'again' if number % 2 else 'once'}-{number}": number for number in range(result.tasks)}
        ids = dict(
            zip(
                names,
                await asyncio.gather(
                    *(client.create(replicas[number % len(replicas)], name) for name, number in names.items())
                ),
                strict=True,
            )
        )
        for number in range(kills):
            replica = replicas[number % len(replicas)]
            # The replica is killed while its first calls run and others wait.
            await asyncio.sleep(CALL_SECONDS / 2)
            await replica.stop(signal.SIGKILL)
            result.kills += 1
            replica.start()
            await client.wait_ready(replica)
        ended = dict(
            zip(
                ids,
                await asyncio.gather(*(client.wait_ended(replicas, id) for id in ids.values())),
                strict=True,
            )
        )
        result.seconds = time.monotonic() - started
        counts = Counter(await client.counts(replicas[0]))
        for name, (status, answer) in ended.items():
            _check(name, status, answer, counts[name], result)


def _check(name: str, status: str, answer: Json, runs: int, result: TaskKillResult) -> None:
    """Check one task: an idempotent call is never lost, another one never runs twice, and a failure is honest."""
    result.completed += status == "completed"
    result.failed += status == "failed"
    if name.startswith("again"):
        result.repeated += runs > 1
        if status != "completed" or not runs:
            result.problems.append(f"{name} was lost: {status}, {runs} runs, {answer}")
        return
    if runs > 1:
        result.problems.append(f"{name} ran {runs} times")
    if status == "completed" and runs != 1:
        result.problems.append(f"{name} completed after {runs} runs")
    if status != "completed":
        error = answer.get("error") or {}
        if "may have happened" not in error.get("message", "") or not error.get("data", {}).get("retryable"):
            result.problems.append(f"{name} ended as {status} without an honest failure: {answer}")


class _Client:
    """A task client of 2025-11-25 that sends each request to any replica."""

    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http = http
        self._headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}

    async def wait_ready(self, replica: Replica) -> None:
        async with asyncio.timeout(120):
            while True:
                try:
                    if (await self._http.get(f"http://127.0.0.1:{replica.port}/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def initialize(self, replica: Replica) -> None:
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
        response = await self._post(replica, "initialize", params)
        self._headers |= {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}

    async def create(self, replica: Replica, name: str) -> str:
        arguments = {"key": name, "seconds": CALL_SECONDS}
        params: Json = {"name": f"far_{name.partition('-')[0]}", "arguments": arguments, "task": {"ttl": 3_600_000}}
        return (await self._post(replica, "tools/call", params)).json()["result"]["task"]["taskId"]

    async def wait_ended(self, replicas: list[Replica], id: str) -> tuple[str, Json]:
        number = 0
        async with asyncio.timeout(240):
            while True:
                number += 1
                replica = replicas[number % len(replicas)]
                try:
                    task = (await self._post(replica, "tasks/get", {"taskId": id})).json()["result"]
                    if task["status"] in TERMINAL:
                        return task["status"], (await self._post(replica, "tasks/result", {"taskId": id})).json()
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.3)

    async def counts(self, replica: Replica) -> dict[str, int]:
        params = {"name": "far_counts", "arguments": {}}
        result = (await self._post(replica, "tools/call", params)).json()["result"]
        return result["structuredContent"]

    async def _post(self, replica: Replica, method: str, params: Json) -> httpx.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._http.post(f"http://127.0.0.1:{replica.port}/mcp", json=message, headers=self._headers)
