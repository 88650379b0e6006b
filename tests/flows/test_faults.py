"""A short version of `make faults`: the long one has a thousand kills, two hundred clients and a process of its own."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.crowd import everybody
from tests.faults.kills import SERVER, Target, rounds_on
from tests.flows.killable import program

CHILD = {"command": sys.executable, "args": ["-I", "-S", SERVER, "handshake"]}


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_server_killed_in_mid_call_is_told_at_once_and_leaves_nothing_behind(
    start: Any, tmp_path: Path, way: str
) -> None:
    with program("-I", "-S", SERVER, "modern") as server:
        await server.listens()
        remote = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        async with start(backends={"far": CHILD if way == "stdio" else remote}) as gateway:
            await gateway.listed("far_pid")
            target = Target(gateway.url, gateway.key, os.getpid(), "handshake" if way == "stdio" else "modern")
            done = await rounds_on(target, server if way == "http" else None, tmp_path / "held", 4, 60)
            assert done.rounds == 4
            # This process has a child fewer or more of its own: the server that is killed and started.
            assert (done.files <= 0, done.processes <= 0) == (True, True)


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_clients_that_use_the_same_ids_and_tokens_each_get_their_own(start: Any, way: str) -> None:
    with program("-I", "-S", SERVER, "handshake") as server:
        await server.listens()
        remote = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True, "max_calls": 8}
        entry = {**CHILD, "isolation": "user"} if way == "stdio" else remote
        async with start(backends={"far": entry}, limits={"calls": "100000/minute"}) as gateway:
            await gateway.listed("far_stream")
            keys = [await gateway.new_key(subject=f"user-{number}") for number in range(8)]
            came = await everybody(gateway.url, keys, way)
        assert came.strangers == 0
        assert (came.progress, came.logs) == (2 * came.calls, 2 * came.calls)
