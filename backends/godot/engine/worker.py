"""Engines kept warm: one process for each project in use, one operation at a time, ended on timeout or when unused."""

import asyncio
import json
import secrets
import time
from asyncio.subprocess import Process
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from backends.godot.engine.messages import errors
from backends.godot.engine.process import Engine, kill, launch, lines
from backends.godot.options import Options
from backends.godot.paths import PROJECT_FILE, Project
from gateway.contract import Json
from gateway.errors import Fault, Kind

SCRIPT: Final = Path(__file__).parent / "operations.gd"
_KINDS: Final = {
    "not_found": Kind.NOT_FOUND,
    "invalid": Kind.INVALID_INPUT,
    "unsupported": Kind.UNSUPPORTED,
    "denied": Kind.DENIED,
}
_MAX_LOGS: Final = 50


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation answered, and what the engine said meanwhile."""

    value: Json
    logs: tuple[str, ...]


class Workers:
    """All warm engines of one backend. A project's engine is nobody else's: its path is its key, and its home the
    tenant's own."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._warm: OrderedDict[Path, _Worker] = OrderedDict()

    async def ask(self, project: Project, home: Path, operation: str, params: Json) -> Done:
        """Raises `Fault`: UNSUPPORTED without an engine, TIMEOUT, or what the operation itself refuses."""
        worker = self._warm.get(project.root)
        if worker is None:
            worker = _Worker(self._engine, project, home, self._options)
            self._warm[project.root] = worker
        self._warm.move_to_end(project.root)
        self._retire()
        return await worker.ask(operation, params)

    def _retire(self) -> None:
        idle = [path for path, worker in self._warm.items() if not worker.busy]
        surplus = len(self._warm) - self._options.max_workers
        for path in idle[: max(surplus, 0)]:
            self._warm.pop(path).end()

    async def sweep(self) -> None:
        """End what nobody used for a while, for as long as the gateway runs."""
        while True:
            await asyncio.sleep(self._options.idle_timeout / 2)
            for path, worker in list(self._warm.items()):
                if not worker.busy and worker.unused_for > self._options.idle_timeout:
                    self._warm.pop(path).end()

    async def close(self) -> None:
        workers = list(self._warm.values())
        self._warm.clear()
        await asyncio.gather(*(worker.close() for worker in workers))


class _Worker:
    def __init__(self, engine: Engine, project: Project, home: Path, options: Options) -> None:
        self._engine = engine
        self._project = project
        self._home = home
        self._options = options
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: Process | None = None
        self._mark = ""
        self._settings_seen: object = None
        self._used = time.monotonic()
        self._drain: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._waiting > 0

    @property
    def unused_for(self) -> float:
        return time.monotonic() - self._used

    async def ask(self, operation: str, params: Json) -> Done:
        if self._waiting >= self._options.max_queue:
            raise Fault(
                Kind.UNAVAILABLE,
                "Too many operations wait for this project's engine.",
                code="E_TIMEOUT",
                retry_after=1.0,
                suggested_fix="Wait a moment and try again.",
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await self._exchange(operation, params)
        finally:
            self._waiting -= 1
            self._used = time.monotonic()

    async def _exchange(self, operation: str, params: Json) -> Done:
        seconds = self._options.task_timeout
        try:
            async with asyncio.timeout(seconds):
                process = await self._ready()
                return await self._one(process, operation, params)
        except TimeoutError as exc:
            self.end()
            raise Fault(Kind.TIMEOUT, f"The engine gave no answer within {seconds:g} s and was ended.") from exc
        except asyncio.CancelledError:
            # It is in the middle of something that nobody waits for any more.
            self.end()
            raise

    async def _ready(self) -> Process:
        """The process, started anew when it has ended or the project's settings are others by now."""
        settings = self._settings()
        if self._process is not None and (self._process.returncode is not None or settings != self._settings_seen):
            await self.close()
        if self._process is None:
            command = self._engine.command("--path", str(self._project.root), "--script", str(SCRIPT))
            self._process = await launch(command, self._project.root, self._home, self._engine.walls, stdin=True)
            self._settings_seen = settings
            self._mark = secrets.token_hex(12)
            await self._send(self._process, self._mark)
            # Unread output would block the engine in the end; what a project prints is of no use here.
            self._drain = asyncio.create_task(_discard(self._process))
        return self._process

    def _settings(self) -> object:
        try:
            found = (self._project.root / PROJECT_FILE).stat()
        except OSError as exc:
            raise Fault(Kind.NOT_FOUND, "The project is gone: it has no project.godot.") from exc
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    async def _one(self, process: Process, operation: str, params: Json) -> Done:
        await self._send(process, json.dumps({"operation": operation, "params": params}))
        assert process.stderr is not None
        said: list[str] = []
        async for line in lines(process.stderr):
            if line.startswith(self._mark):
                return _done(json.loads(line[len(self._mark) :]), said)
            said = [*said[-_MAX_LOGS:], line]
        self.end()
        await process.wait()
        if not self._project.root.is_dir():
            raise Fault(Kind.NOT_FOUND, "The project's folder is gone.")
        raise Fault(
            Kind.INTERNAL,
            "The engine ended before it answered.",
            details={"exitCode": process.returncode, "logs": [each.text for each in errors(said)]},
        )

    async def _send(self, process: Process, line: str) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # the reader finds out what became of it
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()

    def end(self) -> None:
        if self._process is not None:
            kill(self._process)
            self._process = None

    async def close(self) -> None:
        process = self._process
        self.end()
        if process is not None:
            await process.wait()


async def _discard(process: Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


def _done(answer: Json, said: list[str]) -> Done:
    found = errors(said)
    if answer.get("ok"):
        value: Any = answer.get("value")
        return Done(
            cast("Json", value) if isinstance(value, dict) else {"value": value}, tuple(each.text for each in found)
        )
    details: Json = dict(answer.get("details") or {})
    if found:
        details["logs"] = [each.text for each in found]
    raise Fault(_KINDS.get(str(answer.get("kind")), Kind.INTERNAL), str(answer.get("message")), details=details)
