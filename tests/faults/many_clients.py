"""Many clients that all use the same request ids and progress tokens: each gets its own answers, progress and logs."""

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.auth.api_keys import ApiKeys
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from tests.faults.client import TOKEN, Client, Said, connections
from tests.faults.kills import SERVER, UNLIMITED
from tests.flows.killable import Program
from tests.flows.process import serving, until, write_settings

IDS = range(10)


@dataclass(frozen=True)
class Crowd:
    """What came to the clients."""

    calls: int
    progress: int
    logs: int
    strangers: int
    """Things that came to a client and were another's."""


async def crowd(folder: Path, way: Literal["http", "stdio"], era: str, clients: int) -> Crowd:
    """`era` is the backend's; half of the clients are of each era."""
    server = Program("-I", "-S", SERVER, era) if way == "http" else None
    try:
        if server is not None:
            await server.listens()
            entry: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        else:
            entry = {"command": sys.executable, "args": ["-I", "-S", SERVER, era], "isolation": "user"}
            entry["max_processes"] = clients + 1
        # All of them are one tenant, and none may be turned away.
        entry |= {"max_calls": 64, "max_calls_per_tenant": 64, "max_waiting": clients * len(IDS)}
        served_by = {"port": 0, "max_connections_per_ip": 4096, "max_connections": 4096}
        level = {"format": "json", "level": "warning"}
        shares = {"waiting": clients * len(IDS)}
        backends = {"far": entry}
        write_settings(folder, backends=backends, limits=UNLIMITED, shares=shares, log=level, server=served_by)
        with serving(folder) as served:
            until(lambda: "far_stream" in served.tool_names(), "its tools")
            return await everybody(served.url, await _keys(folder, clients), way)
    finally:
        if server is not None:
            server.kill()


async def _keys(folder: Path, clients: int) -> list[str]:
    """A user each, made as the command makes them, but in one process: each start of it takes a second."""
    data = folder / ".gatehouse"
    database = await Database.open(data)
    keys = ApiKeys(database, load_secret(data / "secrets", "pepper"))
    try:
        return [(await keys.create("default", f"user-{number}"))[0] for number in range(clients)]
    finally:
        await keys.close()
        await database.close()


async def everybody(url: str, keys: list[str], way: str) -> Crowd:
    """Each key's user calls `far_stream` ten times at once."""
    async with AsyncExitStack() as stack:
        # A pool each: one that all share looks through all its connections for every request.
        pools = [await stack.enter_async_context(connections(4)) for _ in keys]
        users = [
            Client(http, url, key, ("modern", "handshake")[number % 2])
            for number, (http, key) in enumerate(zip(pools, keys, strict=True))
        ]
        await asyncio.gather(*(user.open() for user in users))
        marks = [[f"user-{number}/{id}" for id in IDS] for number in range(len(users))]
        said = await asyncio.gather(
            *(
                user.call("far_stream", {"mark": marks[number][id]}, id, told=True)
                for number, user in enumerate(users)
                for id in IDS
            )
        )
    wanted = [mark for of_user in marks for mark in of_user]
    counted = [_count(mark, each, id % len(IDS), way) for id, (mark, each) in enumerate(zip(wanted, said, strict=True))]
    return Crowd(len(said), *(sum(column) for column in zip(*counted, strict=True)))


def _count(mark: str, said: Said, id: int, way: str) -> tuple[int, int, int]:
    assert said.answer.get("id") == id, said.answer
    assert "result" in said.answer, said.answer
    progress = [each["params"] for each in said.before if each["method"] == "notifications/progress"]
    logs = [each["params"]["data"] for each in said.before if each["method"] == "notifications/message"]
    strangers = sum(each["message"] != mark or each["progressToken"] != TOKEN for each in progress)
    # On a user's own process a log line names no request: it is that user's, whichever of its calls is told.
    owner = mark.partition("/")[0]
    strangers += sum(data != mark if way == "http" else data.partition("/")[0] != owner for data in logs)
    strangers += said.text != mark
    return len(progress), len(logs), strangers
