"""Projects that run, one for each tenant and project, and the last lines that they said."""

import asyncio
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from backends.godot.engine.messages import errors, messages
from backends.godot.engine.process import kill, launch, lines
from backends.godot.engine.sandbox import Walls
from backends.godot.options import Options
from backends.godot.paths import Project
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_GRACE: Final = 3.0


class Run:
    """A running or ended engine of one project."""

    def __init__(self, project: Project, kind: str, process: Process, keep: int) -> None:
        self.project = project
        self.kind = kind
        self.started = time.time()
        self.lines: deque[str] = deque(maxlen=keep)
        self.seen = 0
        self._process = process
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr) if stream
        ]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in lines(stream):
            self.lines.append(line)
            self.seen += 1

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def ended(self, timeout: float) -> bool:
        """Whether it came to its end by itself within that time."""
        _, unread = await asyncio.wait(self._readers, timeout=timeout)
        if unread:
            return False
        await self._process.wait()
        return True

    async def stop(self) -> None:
        """Asked first, killed after a short grace; its last words are read."""
        if self.running:
            with suppress(ProcessLookupError):
                self._process.terminate()
            if not await self.ended(_GRACE):
                kill(self._process)
        kill(self._process)
        await self._process.wait()
        await asyncio.gather(*self._readers)

    def shown(self, since: int = 0) -> Json:
        """What it said from line `since` on, counted from its start."""
        kept = list(self.lines)
        first = self.seen - len(kept)
        new = kept[max(since - first, 0) :]
        found = messages(new)
        return {
            "running": self.running,
            "exitCode": self._process.returncode,
            "kind": self.kind,
            "project": str(self.project.root),
            "output": new,
            "errors": [each.as_json() for each in found if each.severity == "error"],
            "warnings": [each.as_json() for each in found if each.severity == "warning"],
            "cursor": self.seen,
        }

    @property
    def failed(self) -> list[str]:
        return [each.text for each in errors(list(self.lines))]


class Runs:
    """The runs of every tenant; each sees its own only."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._by_tenant: dict[str, dict[tuple[Path, str], Run]] = {}
        self._streaming: dict[str, int] = {}

    async def start(
        self, caller: Caller, project: Project, kind: str, command: Sequence[str], home: Path, walls: Walls
    ) -> Run:
        """A run of the same kind and project that is under way is ended first."""
        runs = self._by_tenant.setdefault(caller.tenant, {})
        if (before := runs.pop((project.root, kind), None)) is not None:
            await before.stop()
        if sum(run.running for run in runs.values()) >= self._options.max_workers:
            raise Fault(Kind.ILLEGAL_STATE, "Too many projects run already.", suggested_fix="Call stop_project first.")
        process = await launch(command, project.root, home, walls, windowed=self._options.windowed)
        run = Run(project, kind, process, self._options.debug_lines)
        runs[project.root, kind] = run
        return run

    def all(self, caller: Caller) -> list[Run]:
        return list(self._by_tenant.get(caller.tenant, {}).values())

    def latest(self, caller: Caller, project: Project | None = None) -> Run | None:
        runs = [run for run in self.all(caller) if project is None or run.project == project]
        return max(runs, key=lambda run: run.started, default=None)

    async def stop(self, caller: Caller, kind: str, project: Project | None = None) -> list[Run]:
        stopped = [
            run
            for run in self.all(caller)
            if run.running and run.kind == kind and (project is None or run.project == project)
        ]
        await asyncio.gather(*(run.stop() for run in stopped))
        return stopped

    # ---- the debug stream: where a reader that comes back goes on ----

    def stream(self, caller: Caller, *, on: bool) -> None:
        if on:
            run = self.latest(caller)
            self._streaming[caller.tenant] = run.seen if run else 0
        else:
            self._streaming.pop(caller.tenant, None)

    def streaming(self, caller: Caller) -> int | None:
        return self._streaming.get(caller.tenant)

    async def close(self) -> None:
        runs = [run for each in self._by_tenant.values() for run in each.values()]
        self._by_tenant.clear()
        await asyncio.gather(*(run.stop() for run in runs))
