"""A child process: what is heard of it, and how it is ended."""

import asyncio
import os

import pytest

from gateway.contract import Json
from gateway.upstream.stdio.process import ChildProcess, ChildProgram

# It says which process it is, and takes no notice of its input: only a signal ends it.
DEAF = """echo '{"pid": '$$'}'; exec sleep 600"""


async def test_a_server_is_ended_also_by_a_task_that_is_being_cancelled() -> None:
    """A start that nobody waits for any more is cancelled, and cleans up as it goes."""
    ended = asyncio.Event()
    said: asyncio.Queue[Json] = asyncio.Queue()
    program = ChildProgram(namespace="deaf", command="sh", args=["-c", DEAF])
    process = await ChildProcess.start(program, said.put_nowait, ended.set)
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


async def test_lines_that_cannot_be_read_are_passed_over() -> None:
    odd = r"""printf '{"a": "\377"}\n'; printf '%0100000d\n' 0 | tr 0 '['; echo '{"good": 1}'; exec sleep 600"""
    said: asyncio.Queue[Json] = asyncio.Queue()
    program = ChildProgram(namespace="odd", command="sh", args=["-c", odd])
    process = await ChildProcess.start(program, said.put_nowait, lambda: None)
    async with asyncio.timeout(20):
        assert await said.get() == {"good": 1}
    await process.stop()
