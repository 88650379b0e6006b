"""A short version of `make faults`, which runs a thousand kills and two hundred clients in its own process."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.many_clients import call_all
from tests.faults.server_kills import SERVER, Target, run_rounds
from tests.faults.task_kills import kill_task_replicas
from tests.flows.killable_server import killable_server

CHILD = {"command": sys.executable, "args": ["-I", "-S", SERVER, "handshake"]}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_server_killed_during_a_call_fails_the_call_at_once_without_leaks(
    start: Any, tmp_path: Path, transport: str
) -> None:
    with killable_server("-I", "-S", SERVER, "modern") as server:
        await server.wait_until_listening()
        remote = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        async with start(backends={"far": CHILD if transport == "stdio" else remote}) as gateway:
            await gateway.wait_for_tool("far_pid")
            target = Target(gateway.url, gateway.key, os.getpid(), "handshake" if transport == "stdio" else "modern")
            outcome = await run_rounds(target, server if transport == "http" else None, tmp_path / "held", 4, 60)
            assert outcome.rounds == 4
            # The number of child processes of the test varies by one: the killed and restarted server.
            assert (outcome.files <= 0, outcome.processes <= 0) == (True, True)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_clients_with_identical_ids_and_tokens_each_get_their_own_messages(start: Any, transport: str) -> None:
    with killable_server("-I", "-S", SERVER, "handshake") as server:
        await server.wait_until_listening()
        remote = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True, "max_calls": 8}
        entry = {**CHILD, "isolation": "user"} if transport == "stdio" else remote
        async with start(backends={"far": entry}, limits={"calls": "100000/minute"}) as gateway:
            await gateway.wait_for_tool("far_stream")
            keys = [await gateway.new_key(subject=f"user-{number}") for number in range(8)]
            result = await call_all(gateway.url, keys, transport)
        assert result.misdelivered == 0
        assert (result.progress, result.logs) == (2 * result.calls, 2 * result.calls)


async def test_tasks_of_a_killed_replica_are_taken_over_or_fail_honestly(tmp_path: Path) -> None:
    result = await kill_task_replicas(tmp_path, 40, kills=1, replicas=2)
    assert result.problems == []
    assert result.completed + result.failed == result.tasks
    assert result.taken_over > 0
