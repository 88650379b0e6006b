"""Shared services of one godot backend instance: engine, editors, project runs, audit log and access checks.

Every tool handler reaches them through `ToolCall.services`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from backends.godot.audit import AuditLog
from backends.godot.class_data import ClassData
from backends.godot.editor import Editors
from backends.godot.engine.process import Engine, LineListener, ProcessResult, run_to_completion
from backends.godot.engine.worker import EnginePool, OperationResult
from backends.godot.events import EditorEvents
from backends.godot.games import Games
from backends.godot.options import Options
from backends.godot.paths import PROJECT_FILE, Project, Roots
from backends.godot.project_runs import ProjectRuns
from backends.godot.tool import Tool
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

_ENGINE_HOME_FOLDER: Final = ".engine"


class Services:
    """Created once for each entry of `backends:`. All state is keyed by tenant or by a tenant's project."""

    def __init__(self, host: Host, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self.options: Options = host.options
        self.host = host
        self.engine = Engine(self.options)
        self.class_data = ClassData()
        self.engine_pool = EnginePool(self.engine, self.options)
        self.editors = Editors(host)
        self.events = EditorEvents(host)
        self.runs = ProjectRuns(self.options)
        self.games = Games(self.engine, self.options)
        self.audit = AuditLog(self.options.audit_max_bytes, self.options.audit_backups)
        self.roots = Roots(self.options.roots)
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    def folder(self, caller: Caller) -> Path:
        """Return the folder of the caller's tenant."""
        return self.host.folder(caller)

    def engine_home(self, caller: Caller) -> Path:
        """Return the engine's home directory. Each tenant has its own engine settings and saved game data."""
        return self.folder(caller) / _ENGINE_HOME_FOLDER

    def project(self, caller: Caller, path: str) -> Project:
        """Return the caller's project at an absolute path. Raises `Fault(DENIED)` outside the tenant's roots."""
        return self.roots.resolve_project(caller, self.folder(caller), path)

    def local_or_remote_project(self, caller: Caller, path: str) -> Project:
        """Return a project on this machine, or a remote one that an editor of the tenant announced by this path."""
        try:
            return self.project(caller, path)
        except Fault:
            announced = {peer.get("name") for peer in self.editors.connected(caller)}
            if path not in announced:
                raise
            return Project(Path(path), is_remote=True)

    def project_lock(self, project: Project) -> asyncio.Lock:
        """Return the lock that makes reading, editing and writing a project's files one atomic step."""
        return self._locks.setdefault(project.root, asyncio.Lock())

    async def run_operation(self, caller: Caller, project: Project, operation: str, params: Json) -> OperationResult:
        """Run an operation in the pooled engine process of the project."""
        return await self.engine_pool.run_operation(project, self.engine_home(caller), operation, params)

    async def run_command(
        self,
        caller: Caller,
        project: Project,
        arguments: tuple[str, ...],
        timeout: float,
        program: Path | None = None,
        on_line: LineListener | None = None,
    ) -> ProcessResult:
        """Run the engine's command line and wait until it exits."""
        command = self.engine.command("--path", str(project.root), *arguments)
        if program is not None:
            command[0] = str(program)
        return await run_to_completion(
            command, project.root, self.engine_home(caller), timeout, self.engine.sandbox, on_line
        )

    def scratch_project(self, caller: Caller) -> Project:
        """Return an empty project for operations that need an engine but no project of the caller."""
        folder = self.engine_home(caller) / "nowhere"
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / PROJECT_FILE
        if not settings.exists():
            settings.write_text("config_version=5\n")
        return Project(folder.resolve())

    def check_dangerous(self, operation: str, *, known_dangerous: bool = False) -> None:
        """Raise `Fault(DENIED)` for a dangerous operation. `known_dangerous` skips the check by name."""
        if not self.options.allow_dangerous_ops and (known_dangerous or is_dangerous(operation)):
            raise Fault(
                Kind.DENIED,
                f"{operation} is a dangerous operation, and dangerous operations are disabled.",
                details={"operation": operation, "gate": "ALLOW_DANGEROUS_OPS"},
                suggested_fix="Ask your operator to set ALLOW_DANGEROUS_OPS=true or"
                " backends.godot.options.allow_dangerous_ops.",
            )

    def resolve_program(self, path: str | None) -> Path | None:
        """Return the engine program that the caller names, or None without a name.

        Raises `Fault(DENIED)` unless external tools are allowed.
        """
        if path is None:
            return None
        if not self.options.allow_external_tools:
            raise Fault(
                Kind.DENIED,
                "Only the engine that the operator configured may be used.",
                details={"gate": "ALLOW_EXTERNAL_TOOLS"},
                suggested_fix="Leave godotPath out, or ask your operator to set ALLOW_EXTERNAL_TOOLS=true.",
            )
        program = Path(path)
        if not program.is_absolute() or not program.is_file():
            raise Fault(Kind.NOT_FOUND, "There is no program at godotPath.")
        return program

    async def close(self) -> None:
        await self.runs.close()
        await self.games.close()
        await self.engine_pool.close()


_DANGEROUS_WORDS: Final = ("delete", "remove", "move", "rename", "export", "build", "project_setting", "convert")
_DANGEROUS_NAMES: Final = frozenset({"resave_resources", "update_project_uids"})
_SAFE_NAMES: Final = frozenset({"project_config_project_setting_get_v1", "project_setting.get"})


def is_dangerous(operation: str) -> bool:
    """Decide by the name alone, so that operations added later are gated by default."""
    if operation in _SAFE_NAMES:
        return False
    return operation in _DANGEROUS_NAMES or any(word in operation.lower() for word in _DANGEROUS_WORDS)
