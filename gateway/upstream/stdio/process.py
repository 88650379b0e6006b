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
from gateway.upstream.stdio import child_launcher
from gateway.upstream.stdio.line_reader import ClippedLineReader, LineReader, LineTooLong
from gateway.upstream.stdio.orphan_reaper import OrphanReaper

log = logging.getLogger("gatehouse.upstream")

LINE_BYTES: Final = 8 * 1024 * 1024
COMPLAINT_BYTES: Final = 4096
SECRET_LENGTH: Final = 6
"""Shorter values of the environment, such as `true`, are nobody's secret and part of many words."""
GRACE_SECONDS: Final = 2.0
LAST_WORDS_SECONDS: Final = 0.1
_TRUSTED: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
"""Where this machine keeps the authorities that it trusts: without them nothing is fetched in many a company."""
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", *_TRUSTED)
"""All that a server gets of the gateway's own environment."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBounds:
    """What one process may use; 0: as much as there is."""

    memory_mb: int = 0
    cpu_seconds: int = 0
    files: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProgram:
    """What to run."""

    namespace: str
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    bounds: ProcessBounds = ProcessBounds()
    watchdog: OrphanReaper = field(default_factory=OrphanReaper)


class ChildProcess(asyncio.SubprocessProtocol):
    """A running server. `heard` gets every message it writes; `ended` is called once, when it will write no more."""

    def __init__(self, program: ChildProgram, heard: Callable[[Json], None], ended: Callable[[], None]) -> None:
        self._program = program
        self._name = program.namespace
        self._heard = heard
        self._tell_end = ended
        self._pid = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._input: asyncio.WriteTransport | None = None
        self._lines = LineReader(LINE_BYTES)
        self._complaints = ClippedLineReader(COMPLAINT_BYTES)
        self._writable = asyncio.Event()
        self._writable.set()
        self._over = False
        self._buried = False
        self._exited = asyncio.Event()
        self._burial: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, program: ChildProgram, heard: Callable[[Json], None], ended: Callable[[], None]
    ) -> "ChildProcess":
        """Raises `Fault(UNAVAILABLE)` when it cannot be run at all."""
        clean = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        bounds = program.bounds
        limits = (bounds.memory_mb, bounds.cpu_seconds, bounds.files, bounds.processes, os.getpid())
        try:
            transport, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(program, heard, ended),
                sys.executable,
                "-I",
                "-S",
                child_launcher.__file__,
                *map(str, limits),
                "--",
                program.command,
                *program.args,
                env={**clean, **program.env},
                cwd=program.cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise Fault(Kind.UNAVAILABLE, f"{program.namespace} cannot be started.") from exc
        process._begun(transport)
        return process

    async def write(self, message: Json) -> None:
        if self._over or self._input is None or self._input.is_closing():
            raise Fault(Kind.UNAVAILABLE, f"{self._name} has stopped.")
        self._input.write(_encode(message) + b"\n")
        if not self._writable.is_set():
            await self._writable.wait()

    async def stop(self) -> None:
        """Close its input, as the protocol asks; then insist. Its whole process group goes."""
        if self._input is not None:
            self._input.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._signal(sign)
            if await self._exits():
                break
        self._bury()
        if self._burial is not None:
            await asyncio.wait({self._burial})

    # ---- from the transport ----

    def _begun(self, transport: asyncio.SubprocessTransport) -> None:
        self._transport = transport
        self._pid = transport.get_pid()
        self._input = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        self._program.watchdog.mind(self._pid)

    def _without_secrets(self, line: str) -> str:
        """Some programs print what they were given: the values of its environment are not for our log."""
        for value in self._program.env.values():
            if len(value) >= SECRET_LENGTH:
                line = line.replace(value, "…")
        return line.rstrip()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            for line in self._complaints.feed(data):
                log.info("%s[%d] %s", self._name, self._pid, self._without_secrets(line.decode(errors="replace")))
            return
        try:
            lines = self._lines.feed(data)
        except LineTooLong:
            log.warning("%s wrote a line of more than %d bytes and is stopped", self._name, LINE_BYTES)
            self._signal(signal.SIGKILL)
            return
        for line in lines:
            message = self._message(line)
            if message is not None:
                self._heard(message)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._writable.set()
        elif fd == 1:
            self._end()

    def process_exited(self) -> None:
        self._exited.set()
        # Its last words may still be on their way; its children may keep the pipe open for ever.
        asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self._end)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- its end ----

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._writable.set()
        self._tell_end()
        self._burial = asyncio.create_task(self._see_it_out(), name=f"bury:{self._name}")

    async def _see_it_out(self) -> None:
        """A server that can no longer be heard must not live on, nor anything it started."""
        if not await self._exits():
            self._signal(signal.SIGKILL)
            await self._exits()
        self._bury()

    async def _exits(self) -> bool:
        # Who stops a server may be cancelled already; in such a task `asyncio.timeout` of Python 3.11.2 ends wrongly.
        exited = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait({exited}, timeout=GRACE_SECONDS)
        finally:
            exited.cancel()
        return self._exited.is_set()

    def _bury(self) -> None:
        if self._buried:
            return
        self._buried = True
        self._signal(signal.SIGKILL)  # what it may have left behind in its group
        self._program.watchdog.let_go(self._pid)
        if self._transport is not None:
            self._transport.close()

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, sign)

    def _message(self, line: bytes) -> Json | None:
        try:
            message: Any = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        if isinstance(message, dict):
            return cast("Json", message)
        if line.strip():
            log.debug("%s wrote something else than JSON-RPC", self._name)
        return None
