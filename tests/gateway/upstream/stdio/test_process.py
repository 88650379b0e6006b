"""A child process: its output and its termination."""

import asyncio
import os

import pytest

from gateway.contract import Json
from gateway.upstream.stdio.process import ChildProcess, ChildProgram

# Prints its process id and ignores its input: only a signal ends it.
IGNORES_INPUT = """echo '{"pid": '$$'}'; exec sleep 600"""


async def test_cancelled_task_can_stop_a_process() -> None:
    """A start is cancelled when all its callers are cancelled, and stops the process on its way out."""
    closed = asyncio.Event()
    messages: asyncio.Queue[Json] = asyncio.Queue()
    program = ChildProgram(namespace="deaf", command="sh", args=["-c", IGNORES_INPUT])
    process = await ChildProcess.start(program, messages.put_nowait, closed.set)
    pid = (await messages.get())["pid"]
    started = asyncio.Event()

    async def wait_and_stop() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await process.stop()

    task = asyncio.create_task(wait_and_stop())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_malformed_output_lines_are_ignored() -> None:
    script = r"""printf '{"a": "\377"}\n'; printf '%0100000d\n' 0 | tr 0 '['; echo '{"good": 1}'; exec sleep 600"""
    messages: asyncio.Queue[Json] = asyncio.Queue()
    program = ChildProgram(namespace="odd", command="sh", args=["-c", script])
    process = await ChildProcess.start(program, messages.put_nowait, lambda: None)
    async with asyncio.timeout(20):
        assert await messages.get() == {"good": 1}
    await process.stop()
