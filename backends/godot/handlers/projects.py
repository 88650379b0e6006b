"""Handlers for projects: list, create, describe, validate; and health checks of engine, editor and add-on."""

import asyncio
import os
import platform
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import parse_errors
from backends.godot.engine.process import probe_version
from backends.godot.envelope import Outcome
from backends.godot.handlers.scenes import SCENES
from backends.godot.handlers.settings import settings_path
from backends.godot.paths import PROJECT_FILE, Project
from backends.godot.text import settings
from backends.godot.text.scan import quote
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

SCRIPTS: Final = frozenset({".gd", ".cs"})
RESOURCES: Final = frozenset({".tres", ".res", ".gdshader"})
_MAX_FOUND: Final = 1000
_SKIPPED_FOLDERS: Final = frozenset({".godot", ".git", "node_modules", ".godot_mcp"})


def list_projects(call: ToolCall) -> Outcome:
    start = call.services.project(call.caller, call.text("directory")).root
    if not start.is_dir():
        raise Fault(Kind.NOT_FOUND, "There is no such directory.")
    max_depth = int(call.get("maxDepth", 8)) if call.get("recursive", False) else 1
    ignored = _SKIPPED_FOLDERS | set(call.get("ignoreDirs", []))
    found: list[Json] = []
    for folder, folders, names in os.walk(start):
        depth = len(Path(folder).relative_to(start).parts)
        if PROJECT_FILE in names:
            found.append({"path": folder, "name": _project_name(Project(Path(folder)))})
            folders.clear()
        folders[:] = sorted(set(folders) - ignored) if depth < max_depth else []
        if len(found) >= _MAX_FOUND:
            break
    return Outcome(f"There are {len(found)} projects.", {"projects": found})


def _project_name(project: Project) -> str:
    try:
        found = settings.values(files.read_text(settings_path(project))).get("application", {}).get("config/name")
    except Fault:
        found = None
    return str(found or project.root.name)


_IGNORED: Final = "# The engine's cache, and the audit log of the gateway.\n.godot/\n.godot_mcp/\n"


def create(call: ToolCall) -> Outcome:
    """Create the minimal `project.godot` that the engine can open."""
    project = call.project
    if (project.root / PROJECT_FILE).exists():
        raise Fault(Kind.INVALID_INPUT, "The folder already contains a project.", suggested_fix="Use another folder.")
    name = call.text("name", project.root.name)
    project.root.mkdir(parents=True, exist_ok=True)
    text = f"config_version=5\n\n[application]\n\nconfig/name={quote(name)}\n"
    text = settings.set_value(text, "application", "config/features", 'PackedStringArray("4.4")')
    size = files.write_text(settings_path(project), text)
    made = [settings_path(project).describe("settings", size)]
    ignored = project.resolve(".gitignore")
    if not files.exists(ignored):
        made.append(ignored.describe("gitignore", files.write_text(ignored, _IGNORED)))
    return Outcome(f"Created the project {name}.", {"projectPath": str(project.root), "name": name}, files=tuple(made))


def info(call: ToolCall) -> Outcome:
    project = call.project
    values = settings.values(files.read_text(settings_path(project)))
    start = project.resolve(".")
    counts: dict[str, int] = {"scenes": 0, "scripts": 0, "resources": 0, "other": 0}
    for location in files.walk(project, start, None):
        counts[_file_kind(location.path.suffix.lower())] += 1
    application = values.get("application", {})
    details: Json = {
        "projectPath": str(project.root),
        "name": _project_name(project),
        "mainScene": application.get("run/main_scene"),
        "features": application.get("config/features"),
        "autoloads": sorted(values.get("autoload", {})),
        "counts": counts,
    }
    return Outcome(f"{details['name']} has {counts['scenes']} scenes and {counts['scripts']} scripts.", details)


def _file_kind(suffix: str) -> str:
    if suffix in SCENES:
        return "scenes"
    if suffix in SCRIPTS:
        return "scripts"
    return "resources" if suffix in RESOURCES else "other"


async def version(call: ToolCall) -> Outcome:
    found = await call.services.engine.version(call.services.engine_home(call.caller))
    return Outcome(f"Godot {found}.", {"version": found})


async def health(call: ToolCall) -> Outcome:
    services = call.services
    details: Json = {"status": "healthy", "editors": len(services.editors.connected(call.caller))}
    if call.get("includeGodotStatus", True):
        try:
            details["godot"] = {
                "available": True,
                "version": await services.engine.version(services.engine_home(call.caller)),
            }
        except Fault as fault:
            details |= {"status": "degraded", "godot": {"available": False, "why": fault.message}}
    if call.get("includeMetrics", True):
        running = [run for run in services.runs.all(call.caller) if run.is_running]
        details["metrics"] = {"running": len(running), "platform": platform.system()}
        details["sandbox"] = await asyncio.to_thread(services.engine.sandbox_status)
    return Outcome(f"The backend is {details['status']}.", details)


async def preflight(call: ToolCall) -> Outcome:
    services = call.services
    program = services.resolve_program(call.get("godotPath"))
    roots = await asyncio.to_thread(services.roots.for_caller, call.caller, services.folder(call.caller))
    checks: list[Json] = [{"name": "project", "ok": True, "detail": _project_name(call.project)}]
    try:
        home = services.engine_home(call.caller)
        found = (
            await probe_version(program, home, services.engine.sandbox)
            if program
            else await services.engine.version(home)
        )
        checks.append({"name": "engine", "ok": found.startswith("4."), "detail": found})
    except Fault as fault:
        checks.append({"name": "engine", "ok": False, "detail": fault.message})
    editor = services.editors.find(call.caller, call.project)
    checks.append({"name": "editor", "ok": editor is not None, "detail": editor or "none is connected"})
    addon = (call.project.root / "addons" / "gatehouse" / "plugin.cfg").is_file()
    checks.append({"name": "addon", "ok": addon, "detail": "installed" if addon else "call godot_sync_addon"})
    ready = all(check["ok"] for check in checks[:2])
    details: Json = {"ready": ready, "checks": checks, "roots": [str(root) for root in roots]}
    return Outcome("Ready." if ready else "Not ready.", details)


async def validate(call: ToolCall) -> Outcome:
    """Compile every script and load every scene and resource."""
    wanted: set[str] = set()
    for flag, suffixes in (("checkScripts", {".gd"}), ("checkScenes", SCENES), ("checkResources", {".tres"})):
        if call.get(flag, True):
            wanted |= suffixes
    start = call.project.resolve(".")
    locations = await asyncio.to_thread(lambda: list(files.walk(call.project, start, frozenset(wanted))))
    issues: list[Json] = []
    for index, location in enumerate(locations):
        if location.path.suffix == ".gd":
            issues += await script_errors(call, location.res)
        elif (error := await _load_error(call, location.res)) is not None:
            issues.append({"severity": "error", "file": location.res, "message": error})
        await call.report_progress(index + 1, len(locations), location.res)
    details: Json = {"valid": not issues, "checked": len(locations), "issues": issues}
    return Outcome(f"Checked {len(locations)} files: {len(issues)} problems.", details)


async def _load_error(call: ToolCall, path: str) -> str | None:
    try:
        if path.endswith((".tscn", ".scn")):
            result = await call.services.run_operation(call.caller, call.project, "load_scene", {"scene": path})
            missing: list[str] = result.value["dependencies"]
            return f"It needs {', '.join(missing)}." if missing else None
        await call.services.run_operation(call.caller, call.project, "load_resource", {"path": path})
    except Fault as fault:
        if fault.kind in (Kind.INVALID_INPUT, Kind.NOT_FOUND):
            return fault.message
        raise
    return None


async def script_errors(call: ToolCall, path: str) -> list[Json]:
    """Return the compiler errors of one script."""
    result = await call.services.run_command(
        call.caller, call.project, ("--check-only", "--script", path), call.services.options.task_timeout
    )
    found = [
        each for each in parse_errors(result.stderr.splitlines()) if not each.text.startswith("Failed to load script")
    ]
    if result.exit_code and not found:
        return [{"severity": "error", "file": path, "message": "The engine could not check the script."}]
    return [{"file": path, **each.as_json()} for each in found if each.file in (None, path) and result.exit_code]
