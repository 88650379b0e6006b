"""What every tool works with: the engine, the editors, what runs, and who may touch which project."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from backends.godot.audit import AuditLog
from backends.godot.editor import Editors
from backends.godot.engine.process import Engine, Finished, Heard, finish
from backends.godot.engine.worker import Done, Workers
from backends.godot.events import Events
from backends.godot.options import Options
from backends.godot.paths import PROJECT_FILE, Project, Roots
from backends.godot.project_runs import Runs
from backends.godot.tool import Tool
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

_ENGINE_HOME: Final = ".engine"


class Desk:
    """One for each entry of `backends:`. What it keeps is keyed by tenant or by a project of one."""

    def __init__(self, home: Host, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self.options: Options = home.options
        self.home = home
        self.engine = Engine(self.options)
        self.workers = Workers(self.engine, self.options)
        self.editors = Editors(home)
        self.events = Events(home)
        self.runs = Runs(self.options)
        self.audit = AuditLog(self.options.audit_max_bytes, self.options.audit_backups)
        self.roots = Roots(self.options.roots)
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    def folder(self, caller: Caller) -> Path:
        return self.home.folder(caller)

    def engine_home(self, caller: Caller) -> Path:
        """The engine's own settings and the games' saved data are the tenant's too."""
        return self.folder(caller) / _ENGINE_HOME

    def project(self, caller: Caller, given: str) -> Project:
        return self.roots.project(caller, self.folder(caller), given)

    def project_or_editors(self, caller: Caller, given: str) -> Project:
        """A project on this machine, or one that a connected editor of the tenant's announced by this very path."""
        try:
            return self.project(caller, given)
        except Fault:
            announced = {peer.get("name") for peer in self.editors.connected(caller)}
            if given not in announced:
                raise
            return Project(Path(given), remote=True)

    def lock(self, project: Project) -> asyncio.Lock:
        """Held while a project is changed: reading, editing and writing a file is one step."""
        return self._locks.setdefault(project.root, asyncio.Lock())

    async def ask(self, caller: Caller, project: Project, operation: str, params: Json) -> Done:
        """An operation of the warm engine."""
        return await self.workers.ask(project, self.engine_home(caller), operation, params)

    async def run(
        self,
        caller: Caller,
        project: Project,
        arguments: tuple[str, ...],
        timeout: float,
        program: Path | None = None,
        on_line: Heard | None = None,
    ) -> Finished:
        """The engine's own command line, to its end."""
        command = self.engine.command("--path", str(project.root), *arguments)
        if program is not None:
            command[0] = str(program)
        return await finish(command, project.root, self.engine_home(caller), timeout, self.engine.walls, on_line)

    def nowhere(self, caller: Caller) -> Project:
        """An empty project, for what needs an engine but no project of the caller's."""
        folder = self.engine_home(caller) / "nowhere"
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / PROJECT_FILE
        if not settings.exists():
            settings.write_text("config_version=5\n")
        return Project(folder.resolve())

    def permit_danger(self, operation: str, *, certain: bool = False) -> None:
        """Raises `Fault(DENIED)` for a dangerous operation; `certain`: it is one, whatever its name."""
        if not self.options.allow_dangerous_ops and (certain or is_dangerous(operation)):
            raise Fault(
                Kind.DENIED,
                f"{operation} is a dangerous operation, and those are switched off.",
                details={"operation": operation, "gate": "ALLOW_DANGEROUS_OPS"},
                suggested_fix="Ask your operator to set ALLOW_DANGEROUS_OPS=true or"
                " backends.godot.options.allow_dangerous_ops.",
            )

    def permit_program(self, given: str | None) -> Path | None:
        """An engine that a caller names; None when it named none."""
        if given is None:
            return None
        if not self.options.allow_external_tools:
            raise Fault(
                Kind.DENIED,
                "Another engine than the operator's may not be used.",
                details={"gate": "ALLOW_EXTERNAL_TOOLS"},
                suggested_fix="Leave godotPath out, or ask your operator to set ALLOW_EXTERNAL_TOOLS=true.",
            )
        program = Path(given)
        if not program.is_absolute() or not program.is_file():
            raise Fault(Kind.NOT_FOUND, "There is no program at godotPath.")
        return program

    async def close(self) -> None:
        await self.runs.close()
        await self.workers.close()


_WORDS: Final = ("delete", "remove", "move", "rename", "export", "build", "project_setting", "convert")
_EXACT: Final = frozenset({"resave_resources", "update_project_uids"})
_SAFE: Final = frozenset({"project_config_project_setting_get_v1", "project_setting.get"})


def is_dangerous(operation: str) -> bool:
    """By the name alone, so that what is added later is guarded before anybody thinks of it."""
    if operation in _SAFE:
        return False
    return operation in _EXACT or any(word in operation.lower() for word in _WORDS)
