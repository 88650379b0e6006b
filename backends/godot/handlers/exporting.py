"""Handlers for exports, documentation and Godot 3 conversion, which run the engine's command line."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import parse_errors
from backends.godot.engine.process import ProcessResult
from backends.godot.envelope import Outcome
from backends.godot.handlers.progress import progress_listener
from backends.godot.paths import ProjectPath
from backends.godot.text import settings
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PRESETS: Final = "export_presets.cfg"
_TIMEOUT: Final = 580.0
_SOURCE_SUFFIXES: Final = frozenset(
    {".godot", ".gd", ".cs", ".tscn", ".scn", ".tres", ".res", ".cfg", ".import", ".uid", ".gdshader", ".md", ".json"}
)


def _read_presets(call: ToolCall) -> list[Json]:
    location = ProjectPath(call.project.root, call.project.root / _PRESETS)
    if not files.exists(location):
        return []
    found = settings.values(files.read_text(location))
    return [
        {
            "name": values.get("name"),
            "platform": values.get("platform"),
            "runnable": values.get("runnable", False),
            "exportPath": values.get("export_path", ""),
        }
        for section, values in found.items()
        if section.startswith("preset.") and section.count(".") == 1
    ]


def list_presets(call: ToolCall) -> Outcome:
    found = _read_presets(call)
    return Outcome(f"There are {len(found)} export presets.", {"presets": found})


def _find_preset(call: ToolCall) -> str:
    wanted = call.text("preset")
    names = [preset["name"] for preset in _read_presets(call)]
    if wanted not in names:
        raise Fault(
            Kind.NOT_FOUND,
            f"There is no export preset {wanted!r}.",
            details={"presets": names},
            suggested_fix="Call list_export_presets; create presets in the editor's Export dialog.",
        )
    return wanted


async def export_project(call: ToolCall) -> Outcome:
    return await _export(call, f"--export-{call.text('mode', 'release')}")


async def export_pack(call: ToolCall) -> Outcome:
    if _output_path(call).path.suffix not in (".pck", ".zip"):
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .pck or .zip.")
    return await _export(call, "--export-pack")


async def _export(call: ToolCall, flag: str) -> Outcome:
    preset, location = await asyncio.to_thread(_find_preset, call), _output_path(call)
    await asyncio.to_thread(files.make_folder, ProjectPath(location.root, location.path.parent))
    result = await call.services.run_command(
        call.caller, call.project, (flag, preset, str(location.path)), _TIMEOUT, on_line=progress_listener(call)
    )
    if result.exit_code or not files.exists(location):
        raise _failure(result, "The export")
    size = location.path.stat().st_size
    details: Json = {"preset": preset, "outputPath": location.res, "bytes": size}
    return Outcome(f"Exported {preset} to {location.res}.", details, files=(location.describe("export", size),))


def _output_path(call: ToolCall) -> ProjectPath:
    """Return the export's path. Read-only callers may export, so an export must not replace project sources."""
    location = call.resolve_path("outputPath")
    if not location.parts or location.parts[0].startswith(".") or location.path.suffix.lower() in _SOURCE_SUFFIXES:
        raise Fault(
            Kind.DENIED,
            f"An export must not be written to {location.res}.",
            suggested_fix="Use a folder such as build/.",
        )
    return location


def _failure(result: ProcessResult, subject: str) -> Fault:
    found = [each.text for each in parse_errors(result.lines)]
    templates = any("no export template" in line.lower() for line in result.lines)
    return Fault(
        Kind.UNSUPPORTED if templates else Kind.INTERNAL,
        f"{subject} needs export templates that are not installed." if templates else f"{subject} failed.",
        details={"exitCode": result.exit_code, "errors": found[:20]},
        suggested_fix="Install the export templates of this engine's version." if templates else None,
    )


async def generate_docs(call: ToolCall) -> Outcome:
    """Write the reference of the project's scripts, or of the engine's classes if the project has no scripts."""
    location = call.resolve_path("outputPath", "docs/api")
    if call.text("format", "xml") != "xml":
        raise Fault(Kind.UNSUPPORTED, "The engine writes its reference only as XML.")
    await asyncio.to_thread(files.make_folder, location)
    start = call.project.resolve(".")
    has_scripts = await asyncio.to_thread(lambda: any(files.walk(call.project, start, frozenset({".gd"}))))
    docs_arguments = ("--gdscript-docs", "res://") if has_scripts else ()
    result = await call.services.run_command(
        call.caller, call.project, ("--doctool", str(location.path), *docs_arguments), _TIMEOUT
    )
    written = await asyncio.to_thread(lambda: list(files.walk(call.project, location, frozenset({".xml"}))))
    if result.exit_code:
        raise _failure(result, "The documentation")
    return Outcome(f"Wrote {len(written)} pages.", {"outputPath": location.res, "pages": len(written)})


async def convert(call: ToolCall) -> Outcome:
    """Convert a Godot 3 project in place or into a copy."""
    source = await asyncio.to_thread(call.services.project, call.caller, call.text("sourcePath"))
    source.check_exists()
    if call.get("targetPath"):
        target = await asyncio.to_thread(call.services.project, call.caller, call.text("targetPath"))
        await asyncio.to_thread(_copy, source.root, target.root)
        source = target
    result = await call.services.run_command(call.caller, source, ("--convert-3to4",), _TIMEOUT)
    if result.exit_code:
        raise _failure(result, "The conversion")
    return Outcome("Converted the project.", {"projectPath": str(source.root), "output": result.lines[-50:]})


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        raise Fault(Kind.INVALID_INPUT, "targetPath already exists.")
    shutil.copytree(source, target, symlinks=True)


async def validate_conversion(call: ToolCall) -> Outcome:
    source = await asyncio.to_thread(call.services.project, call.caller, call.text("sourcePath"))
    source.check_exists()
    result = await call.services.run_command(call.caller, source, ("--validate-conversion-3to4",), _TIMEOUT)
    if result.exit_code:
        raise _failure(result, "The check")
    return Outcome(
        "Reported what a conversion would change.", {"output": result.lines[-200:], "exitCode": result.exit_code}
    )
