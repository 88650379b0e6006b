"""The parent side of a run's worker process: sends work items and receives outcomes as lines of JSON."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from itertools import count
from pathlib import Path
from typing import Any, Final

import backends
from backends.launch.options import Options
from backends.launch.run import Run
from gateway.contract import Json
from gateway.errors import Fault, Kind

log = logging.getLogger("gatehouse.launch")

_MAX_LINE_BYTES: Final = 32 * 1024 * 1024
_INHERITED_VARIABLES: Final = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")


class WorkerProcess:
    """Runs work items in a child process, which starts with the first item.

    Parallel items run in a pool of `pool_size` processes below the child.
    """

    def __init__(self, run: Run, options: Options) -> None:
        self.pool_size = options.writers
        self._run = run
        self._limits = limits(options)
        self._timeout = options.work_seconds
        self._start_lock = asyncio.Lock()
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._item_numbers = count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}

    async def run_item(
        self, worker: str, scope: str, parameters: Json | None = None, *, parallel: bool = False
    ) -> Json:
        """Run one item and return its outcome: `written`, `events`, `result`, and `fault` or `crash` on failure."""
        async with self._start_lock:
            process = self._process or await self._start()
        item = {
            "number": next(self._item_numbers),
            "pool_size": self.pool_size if parallel else 0,
            "run_id": self._run.run_id,
            "worker": worker,
            "scope": scope,
            "limits": self._limits,
            "parameters": parameters or {},
        }
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchange(process, item)
        except TimeoutError as exc:
            self.kill()
            raise Fault(
                Kind.TIMEOUT, "A work item took too long.", code="TOOL_TIMEOUT", details={"worker": worker}
            ) from exc

    async def _exchange(self, process: Process, item: Json) -> Json:
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending[item["number"]] = future
        assert process.stdin is not None
        try:
            if self._reader is None or self._reader.done():
                raise _worker_died()
            process.stdin.write(json.dumps(item).encode() + b"\n")
            await process.stdin.drain()
            return await future
        except ConnectionError as exc:
            raise _worker_died() from exc
        finally:
            del self._pending[item["number"]]

    async def _read_outcomes(self, process: Process) -> None:
        """Set the result of each pending item, until the child exits."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                outcome: Json = json.loads(line)
                future = self._pending.get(outcome.pop("number"))
                if future is not None and not future.done():
                    future.set_result(outcome)
        except ValueError:
            log.exception("launch run %s: invalid output of the worker process; killing it", self._run.run_id)
            self.kill()
        finally:
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(_worker_died())

    def kill(self) -> None:
        """Kill the child and all processes it started."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        if self._process is not None:
            await self._process.wait()
        if self._reader is not None:
            await self._reader

    async def _start(self) -> Process:
        folder = self._run.folder
        environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        environment |= {"PYTHONPATH": _package_root(), "HOME": str(folder / "work")}
        with (folder / "logs" / "worker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "backends.launch.workers"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=folder,
                env=environment,
                limit=_MAX_LINE_BYTES,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read_outcomes(self._process))
        return self._process


def _worker_died() -> Fault:
    return Fault(
        Kind.INTERNAL,
        "The worker process ended before its work was done.",
        retryable=True,
        details={"cause_class": "WorkerDied"},
    )


def limits(options: Options) -> Json:
    """Return the options that limit the work, for the child process."""
    bounds: dict[str, Any] = options.model_dump(
        mode="json",
        include={
            "remotes",
            "local_roots",
            "github_clone_base",
            "max_repo_files",
            "max_file_bytes",
            "max_repo_bytes",
            "chromium",
        },
    )
    return bounds


def _package_root() -> str:
    """Return the folder that contains the `backends` package, for PYTHONPATH."""
    assert backends.__file__ is not None
    return str(Path(backends.__file__).parent.parent)
