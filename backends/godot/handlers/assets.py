"""Handlers for resources and assets: list, create, copy into the project, import."""

import asyncio
import fnmatch
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import parse_errors
from backends.godot.envelope import Outcome
from backends.godot.handlers.progress import progress_listener
from backends.godot.paths import DATA_FOLDER, ProjectPath
from backends.godot.text.literal import to_literal
from backends.godot.text.scan import format_property_name, quote
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

CATEGORIES: Final[Mapping[str, frozenset[str]]] = {
    "texture": frozenset({".png", ".jpg", ".jpeg", ".webp", ".svg", ".bmp", ".tga", ".exr", ".hdr"}),
    "audio": frozenset({".wav", ".ogg", ".mp3"}),
    "model": frozenset({".glb", ".gltf", ".obj", ".fbx", ".dae"}),
    "font": frozenset({".ttf", ".otf", ".woff", ".woff2", ".fnt"}),
}
ALL: Final = frozenset[str]().union(*CATEGORIES.values())
_IMPORT_SECONDS: Final = 280.0
_RESOURCE_TYPE: Final = re.compile(r'\[gd_resource type="(\w+)"')
_MAX_FOUND: Final = 1000


def category(location: ProjectPath) -> str | None:
    return next((name for name, suffixes in CATEGORIES.items() if location.path.suffix.lower() in suffixes), None)


def list_assets(call: ToolCall) -> Outcome:
    wanted = call.text("category", "all")
    suffixes = ALL if wanted == "all" else CATEGORIES[wanted]
    found = files.walk(
        call.project, call.resolve_path("directory", "."), suffixes, recursive=call.get("recursive", True)
    )
    assets = [
        {
            "path": location.res,
            "category": category(location),
            "bytes": location.path.stat().st_size,
            "imported": is_imported(location),
        }
        for location in found
    ]
    return Outcome(f"There are {len(assets)} assets.", {"assets": assets[:_MAX_FOUND], "total": len(assets)})


def is_imported(location: ProjectPath) -> bool:
    return location.path.with_name(location.path.name + ".import").is_file()


def list_resources(call: ToolCall) -> Outcome:
    start = call.resolve_path("directory") if call.get("directory") else call.resolve_path("dirPath", ".")
    found = files.walk(call.project, start, frozenset({".tres", ".res"}), recursive=call.get("recursive", True))
    shown = [
        {"path": location.res, "type": resource_type(location), "bytes": location.path.stat().st_size}
        for location in found
    ]
    if call.get("resourceType"):
        shown = [each for each in shown if each["type"] == call.get("resourceType")]
    limit = int(call.get("maxResults", _MAX_FOUND))
    return Outcome(f"There are {len(shown)} resources.", {"resources": shown[:limit], "total": len(shown)})


def resource_type(location: ProjectPath) -> str:
    if location.path.suffix != ".tres":
        return "Resource"
    with suppress(OSError), location.path.open("rb") as file:
        if found := _RESOURCE_TYPE.search(file.read(512).decode("utf-8", "replace")):
            return found[1]
    return "Resource"


async def create_resource(call: ToolCall) -> Outcome:
    """Create a resource file. The engine writes it if available, so that the engine can read it."""
    location, kind = call.resolve_path("resourcePath"), call.text("resourceType")
    if location.path.suffix != ".tres":
        raise Fault(Kind.INVALID_INPUT, "resourcePath must end in .tres.")
    properties: Json = call.get("properties", {})
    if call.services.engine.is_available:
        data = await run_and_read_output(call, "create_resource", {"type": kind, "properties": properties}, ".tres")
    else:
        lines = "".join(f"{format_property_name(name)} = {to_literal(value)}\n" for name, value in properties.items())
        data = f"[gd_resource type={quote(kind)} format=3]\n\n[resource]\n{lines}".encode()
    size = await asyncio.to_thread(files.write, location, data, overwrite=False)
    details = {"resourcePath": location.res, "resourceType": kind}
    return Outcome(f"Created {location.res}.", details, files=(location.describe("resource", size),))


async def run_and_read_output(call: ToolCall, operation: str, params: Json, suffix: str) -> bytes:
    """Run an engine operation that writes a temporary file and return the file's content."""
    root = call.project.root
    location = ProjectPath(root, root / DATA_FOLDER / f"made{suffix}")
    await asyncio.to_thread(files.make_folder, ProjectPath(root, root / DATA_FOLDER))
    try:
        await call.services.run_operation(call.caller, call.project, operation, {**params, "output": location.res})
        return await asyncio.to_thread(files.read, location)
    finally:
        if files.exists(location):
            await asyncio.to_thread(files.delete, location)


async def export_mesh_library(call: ToolCall) -> Outcome:
    scene, location = call.resolve_scene_path(), call.resolve_path("outputPath")
    if location.path.suffix not in (".tres", ".res", ".meshlib"):
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .tres, .res or .meshlib.")
    params: Json = {"scene": scene.res, "names": call.get("meshItemNames", [])}
    data = await run_and_read_output(call, "mesh_library", params, location.path.suffix)
    size = await asyncio.to_thread(files.write, location, data)
    return Outcome(
        f"Created {location.res}.", {"outputPath": location.res}, files=(location.describe("mesh_library", size),)
    )


def import_asset(call: ToolCall) -> Outcome:
    """Copy an asset into the project. The source must also be in one of the caller's folders."""
    target = call.resolve_path("destinationPath")
    source_path = call.text("sourcePath")
    if source_path.startswith("/"):
        folder = call.services.project(call.caller, os.path.dirname(source_path))
        source = folder.resolve(os.path.basename(source_path), "sourcePath")
    else:
        source = call.resolve_path("sourcePath")
    if category(source) is None:
        raise Fault(
            Kind.UNSUPPORTED,
            f"{source.path.suffix or 'A file without a suffix'} is not an asset type that the engine imports.",
        )
    data = files.read(source, "The asset", limit=64 * 1024 * 1024)
    size = files.write(target, data, overwrite=bool(call.get("overwrite", False)))
    details = {"destinationPath": target.res, "category": category(target)}
    return Outcome(f"Copied the asset to {target.res}.", details, files=(target.describe("asset", size),))


async def reimport(call: ToolCall) -> Outcome:
    """Mark the assets as changed and run the engine's import."""
    paths: list[str] = call.get("assetPaths") or call.get("files") or call.get("paths") or []
    locations = [call.project.resolve(path, "assetPaths") for path in paths]
    for location in locations:
        await asyncio.to_thread(_mark_changed, location, call.text("method", "touch"))
    outcome = await import_all(call)
    details = {"assets": [location.res for location in locations], **outcome.details}
    return Outcome(f"Reimported {len(locations)} assets.", details, warnings=outcome.warnings)


def _mark_changed(location: ProjectPath, method: str) -> None:
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no asset {location.res}.")
    import_file = ProjectPath(location.root, location.path.with_name(location.path.name + ".import"))
    if method == "delete_import" and files.exists(import_file):
        files.delete(import_file)
    os.utime(location.path, follow_symlinks=False)


async def import_all(call: ToolCall) -> Outcome:
    program = call.services.resolve_program(call.get("godotPath"))
    result = await call.services.run_command(
        call.caller, call.project, ("--import",), _IMPORT_SECONDS, program, on_line=progress_listener(call)
    )
    found = parse_errors(result.lines)
    if result.exit_code:
        raise Fault(Kind.INTERNAL, "The import failed.", details={"errors": [each.as_json() for each in found][:20]})
    start = call.project.resolve(".")
    locations = await asyncio.to_thread(lambda: list(files.walk(call.project, start, ALL)))
    details: Json = {
        "assets": len(locations),
        "imported": sum(map(is_imported, locations)),
        "exitCode": result.exit_code,
    }
    return Outcome(
        f"Imported {details['imported']} of {len(locations)} assets.", details, warnings=tuple(e.text for e in found)
    )


async def import_check(call: ToolCall) -> Outcome:
    """Import the assets that were never imported, or all of them with `forceReimport`."""
    paths: list[str] = call.get("files") or call.get("paths") or []
    locations = [call.project.resolve(path, "files") for path in paths]
    not_imported = [location.res for location in locations if not is_imported(location)]
    if not_imported or call.get("forceReimport", False):
        await import_all(call)
    return Outcome(f"{len(not_imported)} of {len(locations)} were not imported yet.", {"imported": not_imported})


def file_exists(call: ToolCall) -> Outcome:
    location = call.resolve_path("filePath")
    found = files.exists(location)
    return Outcome(
        f"{location.res} {'exists' if found else 'does not exist'}.", {"filePath": location.res, "exists": found}
    )


def create_folder(call: ToolCall) -> Outcome:
    location = call.resolve_path("dirPath")
    files.make_folder(location, parents=call.get("createParents", True))
    return Outcome(f"Created {location.res}.", {"dirPath": location.res})


def search_files(call: ToolCall) -> Outcome:
    """Find files by a pattern with * and ? that matches the relative path or the file name."""
    pattern = call.text("pattern")
    found = [
        location.res
        for location in files.walk(
            call.project, call.resolve_path("directory", "."), None, recursive=call.get("recursive", True)
        )
        if fnmatch.fnmatch(location.relative, pattern) or fnmatch.fnmatch(location.path.name, pattern)
    ]
    limit = int(call.get("maxResults", 200))
    return Outcome(f"{len(found)} files match.", {"files": found[:limit], "total": len(found)})
