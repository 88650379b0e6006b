"""Running projects and editors of each tenant, with their most recent output."""

import asyncio
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from backends.godot.engine.messages import parse_errors, parse_messages
from backends.godot.engine.process import kill, launch, read_lines
from backends.godot.engine.sandbox import Sandbox
from backends.godot.options import Options
from backends.godot.paths import Project
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind

_GRACE: Final = 3.0


class ProjectRun:
    """One engine process that runs a project or its editor, and its buffered output; it may have exited."""

    def __init__(self, project: Project, kind: str, process: Process, max_lines: int) -> None:
        self.project = project
        self.kind = kind
        self.started = time.time()
        self.lines: deque[str] = deque(maxlen=max_lines)
        self.line_count = 0
        self._process = process
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr) if stream
        ]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in read_lines(stream):
            self.lines.append(line)
            self.line_count += 1

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait_for_exit(self, timeout: float) -> bool:
        """Return whether the process exits by itself within the timeout."""
        _, unread = await asyncio.wait(self._readers, timeout=timeout)
        if unread:
            return False
        await self._process.wait()
        return True

    async def stop(self) -> None:
        """Terminate the process, kill it after a grace period, and read the remaining output."""
        if self.is_running:
            with suppress(ProcessLookupError):
                self._process.terminate()
            if not await self.wait_for_exit(_GRACE):
                kill(self._process)
        kill(self._process)
        await self._process.wait()
        await asyncio.gather(*self._readers)

    def as_json(self, since: int = 0) -> Json:
        """Return the state and the output from line `since` on, counted from the start of the process."""
        buffered = list(self.lines)
        first = self.line_count - len(buffered)
        selected = buffered[max(since - first, 0) :]
        found = parse_messages(selected)
        return {
            "running": self.is_running,
            "exitCode": self._process.returncode,
            "kind": self.kind,
            "project": str(self.project.root),
            "output": selected,
            "errors": [each.as_json() for each in found if each.severity == "error"],
            "warnings": [each.as_json() for each in found if each.severity == "warning"],
            "cursor": self.line_count,
        }

    @property
    def error_messages(self) -> list[str]:
        return [each.text for each in parse_errors(list(self.lines))]


class ProjectRuns:
    """The runs of all tenants. Each tenant sees only its own runs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._by_tenant: dict[str, dict[tuple[Path, str], ProjectRun]] = {}
        self._streaming: dict[str, int] = {}

    async def start(
        self, caller: Caller, project: Project, kind: str, command: Sequence[str], home: Path, sandbox: Sandbox
    ) -> ProjectRun:
        """Start a run. A previous run of the same kind and project is stopped first."""
        runs = self._by_tenant.setdefault(caller.tenant, {})
        if (previous := runs.pop((project.root, kind), None)) is not None:
            await previous.stop()
        if sum(run.is_running for run in runs.values()) >= self._options.max_workers:
            raise Fault(
                Kind.ILLEGAL_STATE, "Too many projects are already running.", suggested_fix="Call stop_project first."
            )
        process = await launch(command, project.root, home, sandbox, windowed=self._options.windowed)
        run = ProjectRun(project, kind, process, self._options.debug_lines)
        runs[project.root, kind] = run
        return run

    def all(self, caller: Caller) -> list[ProjectRun]:
        return list(self._by_tenant.get(caller.tenant, {}).values())

    def latest(self, caller: Caller, project: Project | None = None) -> ProjectRun | None:
        runs = [run for run in self.all(caller) if project is None or run.project == project]
        return max(runs, key=lambda run: run.started, default=None)

    async def stop(self, caller: Caller, kind: str, project: Project | None = None) -> list[ProjectRun]:
        stopped = [
            run
            for run in self.all(caller)
            if run.is_running and run.kind == kind and (project is None or run.project == project)
        ]
        await asyncio.gather(*(run.stop() for run in stopped))
        return stopped

    # ---- the debug stream: the line at which each tenant continues to read ----

    def set_streaming(self, caller: Caller, *, on: bool) -> None:
        if on:
            run = self.latest(caller)
            self._streaming[caller.tenant] = run.line_count if run else 0
        else:
            self._streaming.pop(caller.tenant, None)

    def stream_position(self, caller: Caller) -> int | None:
        return self._streaming.get(caller.tenant)

    async def close(self) -> None:
        runs = [run for each in self._by_tenant.values() for run in each.values()]
        self._by_tenant.clear()
        await asyncio.gather(*(run.stop() for run in runs))
