"""Games that run under control: they advance only while a call asks for it, so an agent can play and look."""

import asyncio
import json
import secrets
from asyncio.subprocess import Process
from collections import deque
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, cast

from backends.godot.engine import display
from backends.godot.engine.messages import parse_messages
from backends.godot.engine.process import Engine, kill, launch, read_lines
from backends.godot.options import Options
from backends.godot.paths import Project
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

SCRIPT: Final = Path(__file__).parent / "engine" / "game.gd"
FRAMES_PER_SECOND: Final = 60
_START_SECONDS: Final = 40.0
_KINDS: Final = {
    "not_found": Kind.NOT_FOUND,
    "invalid": Kind.INVALID_INPUT,
    "unsupported": Kind.UNSUPPORTED,
}


class Game:
    """One running game and its output."""

    def __init__(self, process: Process, exit_stack: AsyncExitStack, max_lines: int) -> None:
        self._process = process
        self._exit_stack = exit_stack
        self._lock = asyncio.Lock()
        self._mark = secrets.token_hex(12)
        self._answers: asyncio.Queue[Json | None] = asyncio.Queue()
        self.lines: deque[str] = deque(maxlen=max_lines)
        self._readers = [
            asyncio.create_task(self._read(process.stdout)),
            asyncio.create_task(self._read(process.stderr)),
        ]

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        async for line in read_lines(stream):
            if line.startswith(self._mark):
                self._answers.put_nowait(json.loads(line[len(self._mark) :]))
            else:
                self.lines.append(line)
        if stream is self._process.stderr:
            self._answers.put_nowait(None)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def start(self, scene: str) -> Json:
        await self._write(self._mark)
        await self._write(scene)
        return await self._receive(_START_SECONDS)

    async def request(self, timeout: float, **request: Any) -> Json:
        """Send a request and wait for its answer. A game that does not answer is stopped."""
        async with self._lock:
            await self._write(json.dumps(request))
            return await self._receive(timeout)

    async def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # The reader detects that the process has exited.
            self._process.stdin.write(line.encode() + b"\n")
            await self._process.stdin.drain()

    async def _receive(self, timeout: float) -> Json:
        try:
            async with asyncio.timeout(timeout):
                answer = await self._answers.get()
        except TimeoutError as exc:
            await self.close()
            raise Fault(Kind.TIMEOUT, f"The game did not answer within {timeout:g} s and was stopped.") from exc
        except asyncio.CancelledError:
            kill(self._process)
            raise
        if answer is None:
            await self.close()
            raise Fault(Kind.INTERNAL, "The game ended.", details={"output": list(self.lines)[-50:]})
        if not answer.get("ok"):
            kind = _KINDS.get(str(answer.get("kind")), Kind.INTERNAL)
            details: Any = answer.get("details") or {}
            raise Fault(kind, str(answer.get("message")), details=cast("Json", details))
        value: Any = answer.get("value")
        return cast("Json", value) if isinstance(value, dict) else {}

    def messages(self) -> Json:
        """Return the output with its errors and warnings."""
        found = parse_messages(list(self.lines))
        return {
            "output": list(self.lines),
            "errors": [each.as_json() for each in found if each.severity == "error"],
            "warnings": [each.as_json() for each in found if each.severity == "warning"],
        }

    async def close(self) -> None:
        kill(self._process)
        await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._exit_stack.aclose()


class Games:
    """The games of all tenants, one for each project. Each tenant reaches only its own."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._games: dict[tuple[str, Path], Game] = {}

    async def open(self, project: Project, home: Path, scene: str, resolution: str | None = None) -> Game:
        """Start a scene on a display of its own."""
        exit_stack = AsyncExitStack()
        try:
            variables = await exit_stack.enter_async_context(display.virtual_display(home))
            size = ("--resolution", resolution) if resolution else ()
            command = self._engine.command(
                *("--path", str(project.root), *display.RENDERING, "--fixed-fps", str(FRAMES_PER_SECOND), *size),
                *("--script", str(SCRIPT)),
                headless=False,
            )
            sandbox = self._engine.sandbox.with_network() if self._options.game_network else self._engine.sandbox
            process = await launch(command, project.root, home, sandbox, stdin=True, variables=variables)
        except BaseException:
            await exit_stack.aclose()
            raise
        game = Game(process, exit_stack, self._options.debug_lines)
        try:
            await game.start(scene)
        except BaseException:
            await game.close()
            raise
        return game

    async def start(self, caller: Caller, project: Project, home: Path, scene: str, resolution: str | None) -> Game:
        """Start the project's game for later calls. A previous one is stopped first."""
        await self.stop(caller, project)
        if sum(game.is_running for (tenant, _), game in self._games.items() if tenant == caller.tenant) >= (
            self._options.max_workers
        ):
            raise Fault(Kind.ILLEGAL_STATE, "Too many games are running.", suggested_fix="Stop one first.")
        game = await self.open(project, home, scene, resolution)
        self._games[caller.tenant, project.root] = game
        return game

    def get(self, caller: Caller, project: Project) -> Game:
        game = self._games.get((caller.tenant, project.root))
        if game is None or not game.is_running:
            raise Fault(
                Kind.NOT_FOUND, "No game of this project is running.", suggested_fix="Start it with action start."
            )
        return game

    async def stop(self, caller: Caller, project: Project) -> bool:
        game = self._games.pop((caller.tenant, project.root), None)
        if game is not None:
            await game.close()
        return game is not None

    async def close(self) -> None:
        games = list(self._games.values())
        self._games.clear()
        await asyncio.gather(*(game.close() for game in games))
