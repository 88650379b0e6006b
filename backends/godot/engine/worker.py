"""Pool of warm engine processes: one per project in use, one operation at a time, stopped on timeout or when idle."""

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

from backends.godot.engine.messages import parse_errors
from backends.godot.engine.process import Engine, kill, launch, read_lines
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
class OperationResult:
    """The result of an operation and the errors that the engine logged during it."""

    value: Json
    logs: tuple[str, ...]
    output: tuple[str, ...] = ()
    """The last lines that the engine printed during the operation."""


class EnginePool:
    """All warm engines of one backend. Engines are keyed by project path and use the home of the project's tenant."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._workers: OrderedDict[Path, _EngineWorker] = OrderedDict()

    async def run_operation(self, project: Project, home: Path, operation: str, params: Json) -> OperationResult:
        """Run an operation in the project's engine.

        Raises `Fault`: UNSUPPORTED without an engine, TIMEOUT, UNAVAILABLE when the queue is full, or the error of
        the operation itself.
        """
        worker = self._workers.get(project.root)
        if worker is None:
            worker = _EngineWorker(self._engine, project, home, self._options)
            self._workers[project.root] = worker
        self._workers.move_to_end(project.root)
        self._evict_surplus()
        return await worker.run_operation(operation, params)

    def _evict_surplus(self) -> None:
        idle = [path for path, worker in self._workers.items() if not worker.is_busy]
        excess = len(self._workers) - self._options.max_workers
        for path in idle[: max(excess, 0)]:
            self._workers.pop(path).kill()

    async def sweep(self) -> None:
        """Stop idle engines periodically until cancelled."""
        while True:
            await asyncio.sleep(self._options.idle_timeout / 2)
            for path, worker in list(self._workers.items()):
                if not worker.is_busy and worker.idle_seconds > self._options.idle_timeout:
                    self._workers.pop(path).kill()

    async def close(self) -> None:
        workers = list(self._workers.values())
        self._workers.clear()
        await asyncio.gather(*(worker.close() for worker in workers))


class _EngineWorker:
    """The engine process of one project, restarted when it has exited or the project's settings have changed."""

    def __init__(self, engine: Engine, project: Project, home: Path, options: Options) -> None:
        self._engine = engine
        self._project = project
        self._home = home
        self._options = options
        self._lock = asyncio.Lock()
        self._pending = 0
        self._process: Process | None = None
        self._marker = ""
        self._settings_stamp: object = None
        self._last_used = time.monotonic()
        self._stdout_drain: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._pending > 0

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._last_used

    async def run_operation(self, operation: str, params: Json) -> OperationResult:
        if self._pending >= self._options.max_queue:
            raise Fault(
                Kind.UNAVAILABLE,
                "Too many operations are waiting for this project's engine.",
                code="E_TIMEOUT",
                retry_after=1.0,
                suggested_fix="Wait a moment and try again.",
            )
        self._pending += 1
        try:
            async with self._lock:
                return await self._run_with_timeout(operation, params)
        finally:
            self._pending -= 1
            self._last_used = time.monotonic()

    async def _run_with_timeout(self, operation: str, params: Json) -> OperationResult:
        timeout = self._options.task_timeout
        try:
            async with asyncio.timeout(timeout):
                process = await self._ensure_process()
                return await self._send_and_receive(process, operation, params)
        except TimeoutError as exc:
            self.kill()
            raise Fault(Kind.TIMEOUT, f"The engine did not respond within {timeout:g} s and was stopped.") from exc
        except asyncio.CancelledError:
            # The caller has left while the engine is executing its operation.
            self.kill()
            raise

    async def _ensure_process(self) -> Process:
        """Return the process; start a new one when it has exited or the project's settings have changed."""
        stamp = self._read_settings_stamp()
        if self._process is not None and (self._process.returncode is not None or stamp != self._settings_stamp):
            await self.close()
        if self._process is None:
            command = self._engine.command("--path", str(self._project.root), "--script", str(SCRIPT))
            self._process = await launch(command, self._project.root, self._home, self._engine.sandbox, stdin=True)
            self._settings_stamp = stamp
            self._marker = secrets.token_hex(12)
            await self._send(self._process, self._marker)
            # Unread output would eventually block the engine. The project's own output is not needed here.
            self._stdout_drain = asyncio.create_task(_discard_stdout(self._process))
        return self._process

    def _read_settings_stamp(self) -> object:
        try:
            found = (self._project.root / PROJECT_FILE).stat()
        except OSError as exc:
            raise Fault(Kind.NOT_FOUND, "The project no longer exists: it has no project.godot.") from exc
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    async def _send_and_receive(self, process: Process, operation: str, params: Json) -> OperationResult:
        await self._send(process, json.dumps({"operation": operation, "params": params}))
        assert process.stderr is not None
        output: list[str] = []
        async for line in read_lines(process.stderr):
            if line.startswith(self._marker):
                return _to_result(json.loads(line[len(self._marker) :]), output)
            output = [*output[-_MAX_LOGS:], line]
        self.kill()
        await process.wait()
        if not self._project.root.is_dir():
            raise Fault(Kind.NOT_FOUND, "The project's folder no longer exists.")
        raise Fault(
            Kind.INTERNAL,
            "The engine exited before it responded.",
            details={"exitCode": process.returncode, "logs": [each.text for each in parse_errors(output)]},
        )

    async def _send(self, process: Process, line: str) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # The reader detects that the process has exited.
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()

    def kill(self) -> None:
        if self._process is not None:
            kill(self._process)
            self._process = None

    async def close(self) -> None:
        process = self._process
        self.kill()
        if process is not None:
            await process.wait()


async def _discard_stdout(process: Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


def _to_result(answer: Json, output: list[str]) -> OperationResult:
    found = parse_errors(output)
    if answer.get("ok"):
        value: Any = answer.get("value")
        return OperationResult(
            cast("Json", value) if isinstance(value, dict) else {"value": value},
            tuple(each.text for each in found),
            tuple(output),
        )
    details: Json = dict(answer.get("details") or {})
    if found:
        details["logs"] = [each.text for each in found]
    raise Fault(_KINDS.get(str(answer.get("kind")), Kind.INTERNAL), str(answer.get("message")), details=details)
