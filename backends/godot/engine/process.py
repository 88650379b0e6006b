"""Runs the engine as a child process with a clean environment, bounded output and a guaranteed end."""

import asyncio
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.godot.engine.sandbox import Sandbox, supported_isolation
from backends.godot.options import Options
from gateway.contract import Json
from gateway.errors import Fault, Kind

LINE_LIMIT: Final = 8 * 1024 * 1024
_MAX_OUTPUT: Final = 256 * 1024
_DISPLAY_VARIABLES: Final = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_PROBE_SECONDS: Final = 15
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0a-\x1f\x7f-\x9f]")

LineListener = Callable[[str], Awaitable[None]]
"""Called with every output line of the engine."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """Exit code and the end of the output of a finished process."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return [line for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]


class Engine:
    """The configured engine: its program, version and sandbox."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._version: str | None = None
        # A window needs the display socket, the GPU, and the user's fonts and audio, which a sandbox blocks.
        mode = "off" if options.windowed else options.sandbox
        self.sandbox = Sandbox(mode, options.engine_memory_mb, readable_paths=options.engine_reads)

    def program(self) -> Path:
        """Return the engine's path. Raises `Fault(UNSUPPORTED)` when no engine is available."""
        program = self._options.program()
        if program is None and self._options.godot_path is None and (found := shutil.which("godot")) is not None:
            program = Path(found)
        if program is None or not os.access(program, os.X_OK) or not program.is_file():
            raise Fault(
                Kind.UNSUPPORTED,
                "There is no Godot engine on this machine.",
                suggested_fix="Ask your operator to set backends.godot.options.godot_path or GODOT_PATH to a Godot 4.",
            )
        return program.absolute()

    @property
    def is_available(self) -> bool:
        try:
            return bool(self.program())
        except Fault:
            return False

    async def version(self, home: Path) -> str:
        """Return the engine's version, cached after the first call."""
        if self._version is None:
            self._version = await probe_version(self.program(), home, self.sandbox)
        return self._version

    def sandbox_status(self) -> Json:
        """Return the sandbox mode and which kinds of isolation are active."""
        return {
            "mode": self.sandbox.mode,
            **{name: self.sandbox.mode != "off" and supported for name, supported in supported_isolation().items()},
        }

    def command(self, *arguments: str, headless: bool = True) -> list[str]:
        """Return the engine's command line with these arguments."""
        return [str(self.program()), *(("--headless",) if headless else ()), "--no-header", *arguments]


async def probe_version(program: Path, home: Path, sandbox: Sandbox) -> str:
    """Run `--version`. Raises `Fault(UNSUPPORTED)` when the program is not Godot."""
    result = await run_to_completion([str(program), "--headless", "--version"], home, home, _PROBE_SECONDS, sandbox)
    output_lines = result.stdout.strip().splitlines()
    if result.exit_code or not output_lines or not output_lines[-1][:1].isdigit():
        raise Fault(Kind.UNSUPPORTED, "The program at the engine's path is not Godot.")
    return output_lines[-1]


def build_environment(
    home: Path, *, windowed: bool = False, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return a minimal environment. Project code can read it, so it contains nothing from the gateway's own."""
    scratch = home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "TMPDIR": str(scratch)}
    if windowed:
        found |= {name: os.environ[name] for name in _DISPLAY_VARIABLES if name in os.environ}
    return found | dict(variables or {})


@asynccontextmanager
async def running_process(
    command: Sequence[str], folder: Path, home: Path, sandbox: Sandbox, *, windowed: bool = False
) -> AsyncGenerator[Process, None]:
    """Start a process and kill it with all its children when the block ends."""
    process = await launch(command, folder, home, sandbox, windowed=windowed)
    try:
        yield process
    finally:
        kill(process)
        await process.wait()


async def launch(
    command: Sequence[str],
    folder: Path,
    home: Path,
    sandbox: Sandbox,
    *,
    stdin: bool = False,
    windowed: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Process:
    """Start the command inside the sandbox, in its own session. Raises `Fault` when it cannot start."""
    await asyncio.to_thread(sandbox.check)
    environment = build_environment(home, windowed=windowed, variables=variables)
    try:
        return await asyncio.create_subprocess_exec(
            *sandbox.wrap_command(command, folder, home),
            cwd=folder,
            env=environment,
            stdin=PIPE if stdin else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            limit=LINE_LIMIT,
        )
    except FileNotFoundError as exc:
        raise Fault(Kind.NOT_FOUND, "The project's folder no longer exists.") from exc
    except OSError as exc:
        raise Fault(Kind.INTERNAL, "The engine could not be started.") from exc


def kill(process: Process) -> None:
    """Kill the whole process group: a game may have started other programs."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def run_to_completion(
    command: Sequence[str],
    folder: Path,
    home: Path,
    timeout: float,
    sandbox: Sandbox,
    on_line: LineListener | None = None,
    *,
    windowed: bool = False,
) -> ProcessResult:
    """Run a command until it exits. On timeout the process is killed and `Fault(TIMEOUT)` is raised."""
    async with running_process(command, folder, home, sandbox, windowed=windowed) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(timeout):
                out, err = await asyncio.gather(_tail(process.stdout, on_line), _tail(process.stderr, on_line))
                return ProcessResult(await process.wait(), out, err)
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, f"The engine did not finish within {timeout:g} s and was stopped.") from exc


async def _tail(stream: asyncio.StreamReader, on_line: LineListener | None) -> str:
    """Read the whole stream, so that the process never blocks, and return the last `_MAX_OUTPUT` characters."""
    tail: deque[str] = deque()
    size = 0
    async for line in read_lines(stream):
        tail.append(line)
        size += len(line)
        while size > _MAX_OUTPUT:
            size -= len(tail.popleft())
        if on_line is not None:
            await on_line(line)
    return "\n".join(tail)


async def read_lines(stream: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    """Yield lines without color codes and control characters. Lines above `LINE_LIMIT` are split."""
    while True:
        try:
            raw = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                yield _clean(end.partial)
            return
        except asyncio.LimitOverrunError as over:
            raw = await stream.readexactly(over.consumed)
        yield _clean(raw)


def _clean(raw: bytes) -> str:
    return _CONTROL.sub("", raw.decode("utf-8", "replace"))
