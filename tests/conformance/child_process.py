"""Child processes that are stopped when their context exits."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Final

_GRACE: Final = 10.0


@asynccontextmanager
async def child_process(
    *command: str,
    env: Mapping[str, str],
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=stdout, stderr=stderr)
    try:
        yield process
    finally:
        if process.returncode is None:
            await _stop(process)


async def _stop(process: Process) -> None:
    process.terminate()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        # Runs also when the wait is cancelled.
        if process.returncode is None:
            process.kill()
