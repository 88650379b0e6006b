"""A server process and its pipes: JSON lines on standard input and output; standard error goes to the log."""

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
from gateway.upstream.breaker import ConnectionFailed
from gateway.upstream.stdio import child_launcher
from gateway.upstream.stdio.line_reader import ClippedLineReader, LineReader, LineTooLong
from gateway.upstream.stdio.orphan_reaper import OrphanReaper

log = logging.getLogger("gatehouse.upstream")
output_log = logging.getLogger("gatehouse.upstream.output")
"""Standard error of the processes. `gatehouse serve` on a terminal sends it to a file."""

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
STDERR_LINE_BYTES: Final = 4096
MIN_SECRET_LENGTH: Final = 6
"""Shorter environment values, such as `true`, are not redacted: they are no secrets and part of many words."""
GRACE_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 0.1
_CA_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
"""The certificate authorities that this machine trusts: required behind a TLS-inspecting proxy."""
_INHERITED_VARIABLES: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    *_CA_VARIABLES,
)
"""The variables that a server inherits from the gateway's environment."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBounds:
    """Resource limits of one process; 0 means no limit."""

    memory_mb: int = 0
    cpu_seconds: int = 0
    files: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProgram:
    """The command of a server, its environment and its limits."""

    namespace: str
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    bounds: ProcessBounds = ProcessBounds()
    reaper: OrphanReaper = field(default_factory=OrphanReaper)


class ChildProcess(asyncio.SubprocessProtocol):
    """A running server. Calls `on_message` for every message, and `on_close` once when its output ends."""

    def __init__(self, program: ChildProgram, on_message: Callable[[Json], None], on_close: Callable[[], None]) -> None:
        self._program = program
        self._name = program.namespace
        self._on_message = on_message
        self._on_close = on_close
        self._pid = 0
        self._transport: asyncio.SubprocessTransport | None = None
        self._input: asyncio.WriteTransport | None = None
        self._lines = LineReader(MAX_LINE_BYTES)
        self._stderr_lines = ClippedLineReader(STDERR_LINE_BYTES)
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self._cleaned_up = False
        self._exited = asyncio.Event()
        self._cleanup_task: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, program: ChildProgram, on_message: Callable[[Json], None], on_close: Callable[[], None]
    ) -> "ChildProcess":
        """Start the program. Raises `Fault(UNAVAILABLE)` when that fails."""
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        bounds = program.bounds
        limits = (bounds.memory_mb, bounds.cpu_seconds, bounds.files, bounds.processes, os.getpid())
        try:
            transport, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(program, on_message, on_close),
                sys.executable,
                "-I",
                "-S",
                child_launcher.__file__,
                *map(str, limits),
                "--",
                program.command,
                *program.args,
                env={**inherited, **program.env},
                cwd=program.cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise ConnectionFailed(f"{program.namespace} cannot be started.") from exc
        process._attach(transport)
        return process

    async def write(self, message: Json) -> None:
        if self._ended or self._input is None or self._input.is_closing():
            raise ConnectionFailed(f"{self._name} has stopped.")
        self._input.write(_encode(message) + b"\n")
        if not self._writable.is_set():
            await self._writable.wait()

    async def stop(self) -> None:
        """Close standard input, as the protocol requires, then send SIGTERM and SIGKILL to the process group."""
        if self._input is not None:
            self._input.close()
        for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
            if signal_number is not None:
                self._send_signal(signal_number)
            if await self._wait_exit():
                break
        self._clean_up()
        if self._cleanup_task is not None:
            await asyncio.wait({self._cleanup_task})

    # ---- callbacks of the transport ----

    def _attach(self, transport: asyncio.SubprocessTransport) -> None:
        self._transport = transport
        self._pid = transport.get_pid()
        self._input = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        self._program.reaper.register(self._pid)

    def _redact(self, line: str) -> str:
        """Remove the configured environment values: some programs print them, and they may be secrets."""
        for value in self._program.env.values():
            if len(value) >= MIN_SECRET_LENGTH:
                line = line.replace(value, "…")
        return line.rstrip()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            for line in self._stderr_lines.feed(data):
                output_log.info("%s[%d] %s", self._name, self._pid, self._redact(line.decode(errors="replace")))
            return
        try:
            lines = self._lines.feed(data)
        except LineTooLong:
            log.warning("upstream %s: line exceeds %d bytes; the process is killed", self._name, MAX_LINE_BYTES)
            self._send_signal(signal.SIGKILL)
            return
        for line in lines:
            message = self._message(line)
            if message is not None:
                self._on_message(message)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._writable.set()
        elif fd == 1:
            self._end()

    def process_exited(self) -> None:
        self._exited.set()
        # Output may still be in the pipe; children of the process may keep the pipe open forever.
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._end)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- termination ----

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._writable.set()
        self._on_close()
        self._cleanup_task = asyncio.create_task(self._terminate(), name=f"terminate:{self._name}")

    async def _terminate(self) -> None:
        """Kill the process group of a server whose output has ended."""
        if not await self._wait_exit():
            self._send_signal(signal.SIGKILL)
            await self._wait_exit()
        self._clean_up()

    async def _wait_exit(self) -> bool:
        # The calling task may be cancelled already; there `asyncio.timeout` of Python 3.11.2 misbehaves.
        exited = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait({exited}, timeout=GRACE_SECONDS)
        finally:
            exited.cancel()
        return self._exited.is_set()

    def _clean_up(self) -> None:
        if self._cleaned_up:
            return
        self._cleaned_up = True
        self._send_signal(signal.SIGKILL)  # remaining processes of its group
        self._program.reaper.unregister(self._pid)
        if self._transport is not None:
            self._transport.close()

    def _send_signal(self, signal_number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal_number)

    def _message(self, line: bytes) -> Json | None:
        try:
            message: Any = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        if isinstance(message, dict):
            return cast("Json", message)
        if line.strip():
            log.debug("upstream %s: output line is not a JSON-RPC message; ignored", self._name)
        return None
