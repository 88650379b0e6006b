"""The child process of a run, from this side: work items in, outcomes out."""

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

_LINE: Final = 32 * 1024 * 1024
_KEPT: Final = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")


class Workshop:
    """Starts its child with the first item. Items that stand beside each other are done by `hands` processes of it."""

    def __init__(self, run: Run, options: Options) -> None:
        self.hands = options.writers
        self._run = run
        self._limits = limits(options)
        self._seconds = options.work_seconds
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._awaited: dict[int, asyncio.Future[Json]] = {}

    async def do(self, worker: str, scope: str, given: Json | None = None, *, beside: bool = False) -> Json:
        """What the work left: `written`, `news`, `result`, and `fault` or `crash` when it failed."""
        async with self._starting:
            process = self._process or await self._start()
        item = {
            "number": next(self._numbers),
            "hands": self.hands if beside else 0,
            "run_id": self._run.run_id,
            "worker": worker,
            "scope": scope,
            "limits": self._limits,
            "given": given or {},
        }
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(process, item)
        except TimeoutError as exc:
            self.kill()
            raise Fault(
                Kind.TIMEOUT, "A work item took too long.", code="TOOL_TIMEOUT", details={"worker": worker}
            ) from exc

    async def _answer(self, process: Process, item: Json) -> Json:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._awaited[item["number"]] = answer
        assert process.stdin is not None
        try:
            if self._reading is None or self._reading.done():
                raise _died()
            process.stdin.write(json.dumps(item).encode() + b"\n")
            await process.stdin.drain()
            return await answer
        except ConnectionError as exc:
            raise _died() from exc
        finally:
            del self._awaited[item["number"]]

    async def _read(self, process: Process) -> None:
        """Hand each answer to the one who waits for it, until the child ends."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                answer: Json = json.loads(line)
                awaited = self._awaited.get(answer.pop("number"))
                if awaited is not None and not awaited.done():
                    awaited.set_result(answer)
        except ValueError:
            log.exception("the worker of run %s answered what nobody can read", self._run.run_id)
            self.kill()
        finally:
            for awaited in self._awaited.values():
                if not awaited.done():
                    awaited.set_exception(_died())

    def kill(self) -> None:
        """End the child and everything it started."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        if self._process is not None:
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _start(self) -> Process:
        folder = self._run.folder
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"PYTHONPATH": _home_of_packages(), "HOME": str(folder / "work")}
        with (folder / "logs" / "worker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "backends.launch.workers"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=folder,
                env=environment,
                limit=_LINE,
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read(self._process))
        return self._process


def _died() -> Fault:
    return Fault(
        Kind.INTERNAL, "The worker ended before its work did.", retryable=True, details={"cause_class": "WorkerDied"}
    )


def limits(options: Options) -> Json:
    """The options that bound the work, as the child gets them."""
    bounds: dict[str, Any] = options.model_dump(
        mode="json",
        include={"remotes", "local_roots", "github_clone_base", "max_repo_files", "max_file_bytes", "max_repo_bytes"},
    )
    return bounds


def _home_of_packages() -> str:
    assert backends.__file__ is not None
    return str(Path(backends.__file__).parent.parent)
