"""One child process and its pipes: lines of JSON in and out, its complaints into the log."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.upstream.stdio import wrap

log = logging.getLogger("gatehouse.upstream")

LINE_BYTES: Final = 8 * 1024 * 1024
GRACE_SECONDS: Final = 2.0
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")
"""All that a server gets of the gateway's own environment."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run."""

    namespace: str
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    memory_mb: int = 0
    cpu_seconds: int = 0


class Process:
    """A running server. `heard` gets every message it writes; `ended` is called once, when it is gone."""

    def __init__(self, program: Program, child: asyncio.subprocess.Process) -> None:
        self._program = program
        self._child = child
        self._reading: asyncio.Task[None] | None = None
        self._complaints = asyncio.create_task(self._log_complaints())

    @classmethod
    async def start(cls, program: Program, heard: Callable[[Json], None], ended: Callable[[], None]) -> "Process":
        """Raises `Fault(UNAVAILABLE)` when it cannot be run at all."""
        clean = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        limits = (str(program.memory_mb), str(program.cpu_seconds), str(os.getpid()))
        pipe = asyncio.subprocess.PIPE
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                wrap.__file__,
                *limits,
                "--",
                program.command,
                *program.args,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={**clean, **program.env},
                cwd=program.cwd,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        except OSError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{program.namespace} cannot be started.") from exc
        process = cls(program, child)
        process._reading = asyncio.create_task(process._read(heard, ended))
        return process

    async def write(self, message: Json) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(_encode(message) + b"\n")
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self._program.namespace} has stopped.") from exc

    async def stop(self) -> None:
        """Close its input, as the protocol asks; then insist. Its whole process group goes."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._signal(sign)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self._child.wait()
                    break
        self._signal(signal.SIGKILL)  # what it may have left behind in its group
        for task in (self._reading, self._complaints):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._reading, self._complaints)), return_exceptions=True)

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, sign)

    async def _read(self, heard: Callable[[Json], None], ended: Callable[[], None]) -> None:
        assert self._child.stdout is not None
        try:
            while line := await self._child.stdout.readline():
                message = self._message(line)
                if message is not None:
                    heard(message)
        except ValueError:
            log.warning("%s wrote a line of more than %d bytes and is stopped", self._program.namespace, LINE_BYTES)
            self._signal(signal.SIGKILL)
        finally:
            ended()
        await self._child.wait()

    def _message(self, line: bytes) -> Json | None:
        try:
            message: Any = _decode(line)
        except msgspec.DecodeError:
            message = None
        if isinstance(message, dict):
            return cast("Json", message)
        if line.strip():
            log.debug("%s wrote something else than JSON-RPC", self._program.namespace)
        return None

    async def _log_complaints(self) -> None:
        assert self._child.stderr is not None
        with suppress(ValueError):
            while line := await self._child.stderr.readline():
                text = line.decode(errors="replace").rstrip()
                log.info("%s[%d] %s", self._program.namespace, self._child.pid, text)
