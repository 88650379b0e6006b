"""The engine as a child process: a clean environment, bounded output, and no way to outlive its call."""

import asyncio
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.godot.engine.sandbox import Walls, found
from backends.godot.options import Options
from gateway.contract import Json
from gateway.errors import Fault, Kind

LINE_LIMIT: Final = 8 * 1024 * 1024
_KEPT: Final = 256 * 1024
_SCREEN: Final = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_PROBE_SECONDS: Final = 15
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0a-\x1f\x7f-\x9f]")

Heard = Callable[[str], Awaitable[None]]
"""Told every line that the engine says."""


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in (self.out + "\n" + self.err).splitlines() if line.strip()]


class Engine:
    """The operator's engine. Its version is asked once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._version: str | None = None
        # A window needs the screen's socket, the graphics card, the user's fonts and sounds.
        mode = "off" if options.windowed else options.sandbox
        self.walls = Walls(mode, options.engine_memory_mb, reads=options.engine_reads)

    def program(self) -> Path:
        """Raises `Fault(UNSUPPORTED)` when there is none."""
        given = self._options.program()
        if given is None and self._options.godot_path is None and (found := shutil.which("godot")) is not None:
            given = Path(found)
        if given is None or not os.access(given, os.X_OK) or not given.is_file():
            raise Fault(
                Kind.UNSUPPORTED,
                "There is no Godot engine on this machine.",
                suggested_fix="Ask your operator to set backends.godot.options.godot_path or GODOT_PATH to a Godot 4.",
            )
        return given.absolute()

    @property
    def present(self) -> bool:
        try:
            return bool(self.program())
        except Fault:
            return False

    async def version(self, home: Path) -> str:
        if self._version is None:
            self._version = await version_of(self.program(), home, self.walls)
        return self._version

    def sandbox(self) -> Json:
        """Which walls stand around what projects run."""
        return {
            "mode": self.walls.mode,
            **{wall: self.walls.mode != "off" and there for wall, there in found().items()},
        }

    def command(self, *arguments: str, headless: bool = True) -> list[str]:
        return [str(self.program()), *(("--headless",) if headless else ()), "--no-header", *arguments]


async def version_of(program: Path, home: Path, walls: Walls) -> str:
    done = await finish([str(program), "--headless", "--version"], home, home, _PROBE_SECONDS, walls)
    words = done.out.strip().splitlines()
    if done.code or not words or not words[-1][:1].isdigit():
        raise Fault(Kind.UNSUPPORTED, "The program at the engine's path is not Godot.")
    return words[-1]


def environment(home: Path, *, windowed: bool = False) -> dict[str, str]:
    """Nothing of the gateway's own: a project's code reads it."""
    scratch = home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    clean = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "TMPDIR": str(scratch)}
    if windowed:
        clean |= {name: os.environ[name] for name in _SCREEN if name in os.environ}
    return clean


@asynccontextmanager
async def started(
    command: Sequence[str], folder: Path, home: Path, walls: Walls, *, windowed: bool = False
) -> AsyncGenerator[Process, None]:
    """Running until the block ends, with everything it started itself."""
    process = await launch(command, folder, home, walls, windowed=windowed)
    try:
        yield process
    finally:
        kill(process)
        await process.wait()


async def launch(
    command: Sequence[str], folder: Path, home: Path, walls: Walls, *, stdin: bool = False, windowed: bool = False
) -> Process:
    await asyncio.to_thread(walls.check)
    clean = environment(home, windowed=windowed)
    try:
        return await asyncio.create_subprocess_exec(
            *walls.around(command, folder, home),
            cwd=folder,
            env=clean,
            stdin=PIPE if stdin else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            limit=LINE_LIMIT,
        )
    except FileNotFoundError as exc:
        raise Fault(Kind.NOT_FOUND, "The project's folder is gone.") from exc
    except OSError as exc:
        raise Fault(Kind.INTERNAL, "The engine could not be started.") from exc


def kill(process: Process) -> None:
    """The whole group: a game may have started programs of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def finish(
    command: Sequence[str],
    folder: Path,
    home: Path,
    timeout: float,
    walls: Walls,
    on_line: Heard | None = None,
    *,
    windowed: bool = False,
) -> Finished:
    """Run to its end. Raises `Fault(TIMEOUT)` once it was killed for taking too long."""
    async with started(command, folder, home, walls, windowed=windowed) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(timeout):
                out, err = await asyncio.gather(_tail(process.stdout, on_line), _tail(process.stderr, on_line))
                return Finished(await process.wait(), out, err)
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, f"The engine gave no answer within {timeout:g} s and was ended.") from exc


async def _tail(stream: asyncio.StreamReader, on_line: Heard | None) -> str:
    """The end of what it says; the rest is read and forgotten, so that it never blocks."""
    kept: deque[str] = deque()
    size = 0
    async for line in lines(stream):
        kept.append(line)
        size += len(line)
        while size > _KEPT:
            size -= len(kept.popleft())
        if on_line is not None:
            await on_line(line)
    return "\n".join(kept)


async def lines(stream: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    """Each line as text without colours and control characters; one longer than a line may be is cut into pieces."""
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
