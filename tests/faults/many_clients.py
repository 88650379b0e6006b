"""Many clients with equal request ids and progress tokens: each gets only its own responses, progress and logs."""

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.auth.api_keys import ApiKeys
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from tests.faults.client import PROGRESS_TOKEN, CallResult, Client, connections
from tests.faults.server_kills import SERVER, UNLIMITED
from tests.flows.killable_server import KillableServer
from tests.flows.process import serving, until, write_settings

IDS = range(10)


@dataclass(frozen=True)
class DeliveryResult:
    """The messages that the clients received."""

    calls: int
    progress: int
    logs: int
    misdelivered: int
    """Messages that belong to another client."""


async def many_clients(folder: Path, transport: Literal["http", "stdio"], era: str, clients: int) -> DeliveryResult:
    """`era` is the backend's era; half of the clients use each era."""
    server = KillableServer("-I", "-S", SERVER, era) if transport == "http" else None
    try:
        if server is not None:
            await server.wait_until_listening()
            entry: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        else:
            entry = {"command": sys.executable, "args": ["-I", "-S", SERVER, era], "isolation": "user"}
            entry["max_processes"] = clients + 1
        # All clients belong to one tenant, and no call may be rejected.
        entry |= {"max_calls": 64, "max_calls_per_tenant": 64, "max_waiting": clients * len(IDS)}
        server_settings = {"port": 0, "max_connections_per_ip": 4096, "max_connections": 4096}
        log_settings = {"format": "json", "level": "warning"}
        shares = {"waiting": clients * len(IDS)}
        backends = {"far": entry}
        write_settings(
            folder, backends=backends, limits=UNLIMITED, shares=shares, log=log_settings, server=server_settings
        )
        with serving(folder) as served:
            until(lambda: "far_stream" in served.tool_names(), "its tools")
            return await call_all(served.url, await _keys(folder, clients), transport)
    finally:
        if server is not None:
            server.kill()


async def _keys(folder: Path, clients: int) -> list[str]:
    """Create a user per client, as the command does, but in one process: each command takes a second."""
    data = folder / ".gatehouse"
    database = await Database.open(data)
    keys = ApiKeys(database, load_secret(data / "secrets", "pepper"))
    try:
        return [(await keys.create("default", f"user-{number}"))[0] for number in range(clients)]
    finally:
        await keys.close()
        await database.close()


async def call_all(url: str, keys: list[str], transport: str) -> DeliveryResult:
    """The user of each key makes ten concurrent calls of `far_stream`."""
    async with AsyncExitStack() as stack:
        # One pool per client: a shared pool scans all its connections for every request.
        pools = [await stack.enter_async_context(connections(4)) for _ in keys]
        users = [
            Client(http, url, key, ("modern", "handshake")[number % 2])
            for number, (http, key) in enumerate(zip(pools, keys, strict=True))
        ]
        await asyncio.gather(*(user.open() for user in users))
        marks = [[f"user-{number}/{id}" for id in IDS] for number in range(len(users))]
        results = await asyncio.gather(
            *(
                user.call("far_stream", {"mark": marks[number][id]}, id, with_notifications=True)
                for number, user in enumerate(users)
                for id in IDS
            )
        )
    expected = [mark for user_marks in marks for mark in user_marks]
    counts = [
        _count(mark, each, id % len(IDS), transport)
        for id, (mark, each) in enumerate(zip(expected, results, strict=True))
    ]
    return DeliveryResult(len(results), *(sum(column) for column in zip(*counts, strict=True)))


def _count(mark: str, results: CallResult, id: int, transport: str) -> tuple[int, int, int]:
    assert results.response.get("id") == id, results.response
    assert "result" in results.response, results.response
    progress = [each["params"] for each in results.notifications if each["method"] == "notifications/progress"]
    logs = [each["params"]["data"] for each in results.notifications if each["method"] == "notifications/message"]
    misdelivered = sum(each["message"] != mark or each["progressToken"] != PROGRESS_TOKEN for each in progress)
    # A log message of a user's own process names no request: any call of that user may receive it.
    owner = mark.partition("/")[0]
    misdelivered += sum(data != mark if transport == "http" else data.partition("/")[0] != owner for data in logs)
    misdelivered += results.text != mark
    return len(progress), len(logs), misdelivered
