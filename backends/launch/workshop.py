"""The child process of a run, from this side: work items in, outcomes out."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

import backends
from backends.launch.options import Options
from backends.launch.run import Run
from gateway.contract import Json
from gateway.errors import Fault, Kind

_LINE: Final = 32 * 1024 * 1024
_KEPT: Final = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")


class Workshop:
    """Starts its child with the first item; one item at a time."""

    def __init__(self, run: Run, options: Options) -> None:
        self._run = run
        self._limits = limits(options)
        self._seconds = options.work_seconds
        self._process: Process | None = None

    async def do(self, worker: str, scope: str, given: Json | None = None) -> Json:
        """What the work left: `written`, `news`, `result`, and `fault` or `crash` when it failed."""
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        item = {
            "run_id": self._run.run_id,
            "worker": worker,
            "scope": scope,
            "limits": self._limits,
            "given": given or {},
        }
        try:
            async with asyncio.timeout(self._seconds):
                process.stdin.write(json.dumps(item).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError as exc:
            self.kill()
            raise Fault(
                Kind.TIMEOUT, "A work item took too long.", code="TOOL_TIMEOUT", details={"worker": worker}
            ) from exc
        except (ConnectionError, BrokenPipeError):
            line = b""
        if not line:
            raise Fault(
                Kind.INTERNAL,
                "The worker ended before its work did.",
                retryable=True,
                details={"cause_class": "WorkerDied"},
            )
        return json.loads(line)

    def kill(self) -> None:
        """End the child and everything it started."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        if self._process is not None:
            await self._process.wait()

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
        return self._process


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
