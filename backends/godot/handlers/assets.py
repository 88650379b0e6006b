"""Resources and assets: list, make, bring in, import."""

import asyncio
import fnmatch
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import errors
from backends.godot.envelope import Outcome
from backends.godot.handlers.progress import percent
from backends.godot.paths import OURS, Place
from backends.godot.text.literal import literal
from backends.godot.text.scan import property_name, quoted
from backends.godot.tool import Job
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
_TYPE: Final = re.compile(r'\[gd_resource type="(\w+)"')
_MAX_FOUND: Final = 1000


def category(place: Place) -> str | None:
    return next((name for name, suffixes in CATEGORIES.items() if place.path.suffix.lower() in suffixes), None)


def listing(job: Job) -> Outcome:
    wanted = job.text("category", "all")
    suffixes = ALL if wanted == "all" else CATEGORIES[wanted]
    found = files.walk(job.project, job.place("directory", "."), suffixes, recursive=job.get("recursive", True))
    assets = [
        {
            "path": place.res,
            "category": category(place),
            "bytes": place.path.stat().st_size,
            "imported": imported(place),
        }
        for place in found
    ]
    return Outcome(f"There are {len(assets)} assets.", {"assets": assets[:_MAX_FOUND], "total": len(assets)})


def imported(place: Place) -> bool:
    return place.path.with_name(place.path.name + ".import").is_file()


def resources(job: Job) -> Outcome:
    start = job.place("directory") if job.get("directory") else job.place("dirPath", ".")
    found = files.walk(job.project, start, frozenset({".tres", ".res"}), recursive=job.get("recursive", True))
    shown = [{"path": place.res, "type": resource_type(place), "bytes": place.path.stat().st_size} for place in found]
    if job.get("resourceType"):
        shown = [each for each in shown if each["type"] == job.get("resourceType")]
    most = int(job.get("maxResults", _MAX_FOUND))
    return Outcome(f"There are {len(shown)} resources.", {"resources": shown[:most], "total": len(shown)})


def resource_type(place: Place) -> str:
    if place.path.suffix != ".tres":
        return "Resource"
    with suppress(OSError), place.path.open("rb") as file:
        if found := _TYPE.search(file.read(512).decode("utf-8", "replace")):
            return found[1]
    return "Resource"


async def create(job: Job) -> Outcome:
    """Made and saved by the engine where there is one, so that it is what the engine will read."""
    place, kind = job.place("resourcePath"), job.text("resourceType")
    if place.path.suffix != ".tres":
        raise Fault(Kind.INVALID_INPUT, "resourcePath must end in .tres.")
    properties: Json = job.get("properties", {})
    if job.desk.engine.present:
        data = await scratch(job, "create_resource", {"type": kind, "properties": properties}, ".tres")
    else:
        lines = "".join(f"{property_name(name)} = {literal(value)}\n" for name, value in properties.items())
        data = f"[gd_resource type={quoted(kind)} format=3]\n\n[resource]\n{lines}".encode()
    size = await asyncio.to_thread(files.write, place, data, overwrite=False)
    details = {"resourcePath": place.res, "resourceType": kind}
    return Outcome(f"Made {place.res}.", details, files=(place.described("resource", size),))


async def scratch(job: Job, operation: str, params: Json, suffix: str) -> bytes:
    """What an operation of the engine saves, before it is put in its place."""
    root = job.project.root
    place = Place(root, root / OURS / f"made{suffix}")
    await asyncio.to_thread(files.make_folder, Place(root, root / OURS))
    try:
        await job.desk.ask(job.caller, job.project, operation, {**params, "output": place.res})
        return await asyncio.to_thread(files.read, place)
    finally:
        if files.exists(place):
            await asyncio.to_thread(files.delete, place)


async def mesh_library(job: Job) -> Outcome:
    scene, place = job.scene(), job.place("outputPath")
    if place.path.suffix not in (".tres", ".res", ".meshlib"):
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .tres, .res or .meshlib.")
    asked: Json = {"scene": scene.res, "names": job.get("meshItemNames", [])}
    data = await scratch(job, "mesh_library", asked, place.path.suffix)
    size = await asyncio.to_thread(files.write, place, data)
    return Outcome(f"Made {place.res}.", {"outputPath": place.res}, files=(place.described("mesh_library", size),))


def bring_in(job: Job) -> Outcome:
    """A copy inside the project; the source must be the caller's own too."""
    target = job.place("destinationPath")
    given = job.text("sourcePath")
    if given.startswith("/"):
        folder = job.desk.project(job.caller, os.path.dirname(given))
        source = folder.inside(os.path.basename(given), "sourcePath")
    else:
        source = job.place("sourcePath")
    if category(source) is None:
        raise Fault(
            Kind.UNSUPPORTED, f"{source.path.suffix or 'A file without a suffix'} is no asset the engine imports."
        )
    data = files.read(source, "The asset", limit=64 * 1024 * 1024)
    size = files.write(target, data, overwrite=bool(job.get("overwrite", False)))
    details = {"destinationPath": target.res, "category": category(target)}
    return Outcome(f"Brought in {target.res}.", details, files=(target.described("asset", size),))


async def reimport(job: Job) -> Outcome:
    """Marked as changed, then imported by the engine."""
    given: list[str] = job.get("assetPaths") or job.get("files") or job.get("paths") or []
    places = [job.project.inside(path, "assetPaths") for path in given]
    for place in places:
        await asyncio.to_thread(_mark, place, job.text("method", "touch"))
    outcome = await import_all(job)
    details = {"assets": [place.res for place in places], **outcome.details}
    return Outcome(f"Imported {len(places)} assets again.", details, warnings=outcome.warnings)


def _mark(place: Place, method: str) -> None:
    if not files.exists(place):
        raise Fault(Kind.NOT_FOUND, f"There is no asset {place.res}.")
    note = Place(place.root, place.path.with_name(place.path.name + ".import"))
    if method == "delete_import" and files.exists(note):
        files.delete(note)
    os.utime(place.path, follow_symlinks=False)


async def import_all(job: Job) -> Outcome:
    program = job.desk.permit_program(job.get("godotPath"))
    done = await job.desk.run(job.caller, job.project, ("--import",), _IMPORT_SECONDS, program, on_line=percent(job))
    found = errors(done.lines)
    if done.code:
        raise Fault(Kind.INTERNAL, "The import failed.", details={"errors": [each.as_json() for each in found][:20]})
    start = job.project.inside(".")
    places = await asyncio.to_thread(lambda: list(files.walk(job.project, start, ALL)))
    details: Json = {"assets": len(places), "imported": sum(map(imported, places)), "exitCode": done.code}
    return Outcome(
        f"Imported {details['imported']} of {len(places)} assets.", details, warnings=tuple(e.text for e in found)
    )


async def import_check(job: Job) -> Outcome:
    """Only what was never imported, unless forced."""
    given: list[str] = job.get("files") or job.get("paths") or []
    places = [job.project.inside(path, "files") for path in given]
    waiting = [place.res for place in places if not imported(place)]
    if waiting or job.get("forceReimport", False):
        await import_all(job)
    return Outcome(f"{len(waiting)} of {len(places)} were not imported yet.", {"imported": waiting})


def exists(job: Job) -> Outcome:
    place = job.place("filePath")
    there = files.exists(place)
    return Outcome(f"{place.res} {'exists' if there else 'does not exist'}.", {"filePath": place.res, "exists": there})


def make_folder(job: Job) -> Outcome:
    place = job.place("dirPath")
    files.make_folder(place, parents=job.get("createParents", True))
    return Outcome(f"Made {place.res}.", {"dirPath": place.res})


def search(job: Job) -> Outcome:
    """By a pattern with * and ? over the whole path."""
    pattern = job.text("pattern")
    found = [
        place.res
        for place in files.walk(job.project, job.place("directory", "."), None, recursive=job.get("recursive", True))
        if fnmatch.fnmatch(place.relative, pattern) or fnmatch.fnmatch(place.path.name, pattern)
    ]
    most = int(job.get("maxResults", 200))
    return Outcome(f"{len(found)} files match.", {"files": found[:most], "total": len(found)})
