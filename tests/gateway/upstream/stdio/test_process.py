"""A child process: how it is ended."""

import asyncio
import os

import pytest

from gateway.contract import Json
from gateway.upstream.stdio.process import Process, Program

# It says which process it is, and takes no notice of its input: only a signal ends it.
DEAF = """echo '{"pid": '$$'}'; exec sleep 600"""


async def test_a_server_is_ended_also_by_a_task_that_is_being_cancelled() -> None:
    """A start that nobody waits for any more is cancelled, and cleans up as it goes."""
    ended = asyncio.Event()
    said: asyncio.Queue[Json] = asyncio.Queue()
    program = Program(namespace="deaf", command="sh", args=["-c", DEAF])
    process = await Process.start(program, said.put_nowait, ended.set)
    pid = (await said.get())["pid"]
    begun = asyncio.Event()

    async def starting() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await process.stop()

    task = asyncio.create_task(starting())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
