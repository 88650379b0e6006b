"""Projects: find, make, describe, check; and the state of what they need."""

import asyncio
import os
import platform
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import errors
from backends.godot.engine.process import version_of
from backends.godot.envelope import Outcome
from backends.godot.handlers.scenes import SCENES
from backends.godot.handlers.settings import place_of
from backends.godot.paths import PROJECT_FILE, Project
from backends.godot.text import settings
from backends.godot.text.scan import quoted
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

SCRIPTS: Final = frozenset({".gd", ".cs"})
RESOURCES: Final = frozenset({".tres", ".res", ".gdshader"})
_MAX_FOUND: Final = 1000
_NOT_SEARCHED: Final = frozenset({".godot", ".git", "node_modules", ".godot_mcp"})


def listing(job: Job) -> Outcome:
    start = job.desk.project(job.caller, job.text("directory")).root
    if not start.is_dir():
        raise Fault(Kind.NOT_FOUND, "There is no such directory.")
    deepest = int(job.get("maxDepth", 8)) if job.get("recursive", False) else 1
    ignored = _NOT_SEARCHED | set(job.get("ignoreDirs", []))
    found: list[Json] = []
    for folder, folders, names in os.walk(start):
        depth = len(Path(folder).relative_to(start).parts)
        if PROJECT_FILE in names:
            found.append({"path": folder, "name": _name(Project(Path(folder)))})
            folders.clear()
        folders[:] = sorted(set(folders) - ignored) if depth < deepest else []
        if len(found) >= _MAX_FOUND:
            break
    return Outcome(f"There are {len(found)} projects.", {"projects": found})


def _name(project: Project) -> str:
    try:
        found = settings.values(files.read_text(place_of(project))).get("application", {}).get("config/name")
    except Fault:
        found = None
    return str(found or project.root.name)


def create(job: Job) -> Outcome:
    """The least that the engine needs to open a folder."""
    project = job.project
    if (project.root / PROJECT_FILE).exists():
        raise Fault(Kind.DENIED, "There is a project already.", suggested_fix="Use another folder.")
    name = job.text("name", project.root.name)
    project.root.mkdir(parents=True, exist_ok=True)
    text = f"config_version=5\n\n[application]\n\nconfig/name={quoted(name)}\n"
    text = settings.put(text, "application", "config/features", 'PackedStringArray("4.4")')
    size = files.write_text(place_of(project), text)
    made = (place_of(project).described("settings", size),)
    return Outcome(f"Made the project {name}.", {"projectPath": str(project.root), "name": name}, files=made)


def info(job: Job) -> Outcome:
    project = job.project
    values = settings.values(files.read_text(place_of(project)))
    start = project.inside(".")
    counts: dict[str, int] = {"scenes": 0, "scripts": 0, "resources": 0, "other": 0}
    for place in files.walk(project, start, None):
        counts[_kind(place.path.suffix.lower())] += 1
    application = values.get("application", {})
    details: Json = {
        "projectPath": str(project.root),
        "name": _name(project),
        "mainScene": application.get("run/main_scene"),
        "features": application.get("config/features"),
        "autoloads": sorted(values.get("autoload", {})),
        "counts": counts,
    }
    return Outcome(f"{details['name']} has {counts['scenes']} scenes and {counts['scripts']} scripts.", details)


def _kind(suffix: str) -> str:
    if suffix in SCENES:
        return "scenes"
    if suffix in SCRIPTS:
        return "scripts"
    return "resources" if suffix in RESOURCES else "other"


async def version(job: Job) -> Outcome:
    found = await job.desk.engine.version(job.desk.engine_home(job.caller))
    return Outcome(f"Godot {found}.", {"version": found})


async def health(job: Job) -> Outcome:
    desk = job.desk
    details: Json = {"status": "healthy", "editors": len(desk.editors.connected(job.caller))}
    if job.get("includeGodotStatus", True):
        try:
            details["godot"] = {"available": True, "version": await desk.engine.version(desk.engine_home(job.caller))}
        except Fault as fault:
            details |= {"status": "degraded", "godot": {"available": False, "why": fault.message}}
    if job.get("includeMetrics", True):
        running = [run for run in desk.runs.all(job.caller) if run.running]
        details["metrics"] = {"running": len(running), "platform": platform.system()}
        details["sandbox"] = await asyncio.to_thread(desk.engine.sandbox)
    return Outcome(f"The backend is {details['status']}.", details)


async def preflight(job: Job) -> Outcome:
    desk = job.desk
    program = desk.permit_program(job.get("godotPath"))
    roots = await asyncio.to_thread(desk.roots.of, job.caller, desk.folder(job.caller))
    checks: list[Json] = [{"name": "project", "ok": True, "detail": _name(job.project)}]
    try:
        home = desk.engine_home(job.caller)
        found = await version_of(program, home, desk.engine.walls) if program else await desk.engine.version(home)
        checks.append({"name": "engine", "ok": found.startswith("4."), "detail": found})
    except Fault as fault:
        checks.append({"name": "engine", "ok": False, "detail": fault.message})
    editor = desk.editors.of(job.caller, job.project)
    checks.append({"name": "editor", "ok": editor is not None, "detail": editor or "none is connected"})
    addon = (job.project.root / "addons" / "gatehouse" / "plugin.cfg").is_file()
    checks.append({"name": "addon", "ok": addon, "detail": "installed" if addon else "call godot_sync_addon"})
    ready = all(check["ok"] for check in checks[:2])
    details: Json = {"ready": ready, "checks": checks, "roots": [str(root) for root in roots]}
    return Outcome("Ready." if ready else "Not ready.", details)


async def validate(job: Job) -> Outcome:
    """Every script is compiled, every scene and resource loaded."""
    wanted: set[str] = set()
    for flag, suffixes in (("checkScripts", {".gd"}), ("checkScenes", SCENES), ("checkResources", {".tres"})):
        if job.get(flag, True):
            wanted |= suffixes
    start = job.project.inside(".")
    places = await asyncio.to_thread(lambda: list(files.walk(job.project, start, frozenset(wanted))))
    issues: list[Json] = []
    for index, place in enumerate(places):
        if place.path.suffix == ".gd":
            issues += await script_errors(job, place.res)
        elif (why := await _unloadable(job, place.res)) is not None:
            issues.append({"severity": "error", "file": place.res, "message": why})
        await job.report(index + 1, len(places), place.res)
    details: Json = {"valid": not issues, "checked": len(places), "issues": issues}
    return Outcome(f"Checked {len(places)} files: {len(issues)} problems.", details)


async def _unloadable(job: Job, path: str) -> str | None:
    try:
        if path.endswith((".tscn", ".scn")):
            done = await job.desk.ask(job.caller, job.project, "load_scene", {"scene": path})
            missing: list[str] = done.value["dependencies"]
            return f"It needs {', '.join(missing)}." if missing else None
        await job.desk.ask(job.caller, job.project, "load_resource", {"path": path})
    except Fault as fault:
        if fault.kind in (Kind.INVALID_INPUT, Kind.NOT_FOUND):
            return fault.message
        raise
    return None


async def script_errors(job: Job, path: str) -> list[Json]:
    """What the compiler says of one script."""
    done = await job.desk.run(
        job.caller, job.project, ("--check-only", "--script", path), job.desk.options.task_timeout
    )
    found = [each for each in errors(done.err.splitlines()) if not each.text.startswith("Failed to load script")]
    if done.code and not found:
        return [{"severity": "error", "file": path, "message": "The engine could not check it."}]
    return [{"file": path, **each.as_json()} for each in found if each.file in (None, path) and done.code]
