"""Exports, documentation and conversion: what the engine's own command line does with a project."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from backends.godot import files
from backends.godot.engine.messages import errors
from backends.godot.engine.process import Finished
from backends.godot.envelope import Outcome
from backends.godot.handlers.progress import percent
from backends.godot.paths import Place
from backends.godot.text import settings
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PRESETS: Final = "export_presets.cfg"
_SECONDS: Final = 580.0
_SOURCES: Final = frozenset(
    {".godot", ".gd", ".cs", ".tscn", ".scn", ".tres", ".res", ".cfg", ".import", ".uid", ".gdshader", ".md", ".json"}
)


def _read_presets(job: Job) -> list[Json]:
    place = Place(job.project.root, job.project.root / _PRESETS)
    if not files.exists(place):
        return []
    found = settings.values(files.read_text(place))
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


def presets(job: Job) -> Outcome:
    found = _read_presets(job)
    return Outcome(f"There are {len(found)} export presets.", {"presets": found})


def _preset(job: Job) -> str:
    wanted = job.text("preset")
    names = [preset["name"] for preset in _read_presets(job)]
    if wanted not in names:
        raise Fault(
            Kind.NOT_FOUND,
            f"There is no export preset {wanted!r}.",
            details={"presets": names},
            suggested_fix="Call list_export_presets; presets are made in the editor's Export dialog.",
        )
    return wanted


async def project(job: Job) -> Outcome:
    return await _export(job, f"--export-{job.text('mode', 'release')}")


async def pack(job: Job) -> Outcome:
    if _output(job).path.suffix not in (".pck", ".zip"):
        raise Fault(Kind.INVALID_INPUT, "outputPath must end in .pck or .zip.")
    return await _export(job, "--export-pack")


async def _export(job: Job, flag: str) -> Outcome:
    preset, place = await asyncio.to_thread(_preset, job), _output(job)
    await asyncio.to_thread(files.make_folder, Place(place.root, place.path.parent))
    done = await job.desk.run(job.caller, job.project, (flag, preset, str(place.path)), _SECONDS, on_line=percent(job))
    if done.code or not files.exists(place):
        raise _failed(done, "The export")
    size = place.path.stat().st_size
    details: Json = {"preset": preset, "outputPath": place.res, "bytes": size}
    return Outcome(f"Exported {preset} to {place.res}.", details, files=(place.described("export", size),))


def _output(job: Job) -> Place:
    """An export is open to those who may only read: it may not take the place of what the project is made of."""
    place = job.place("outputPath")
    if not place.parts or place.parts[0].startswith(".") or place.path.suffix.lower() in _SOURCES:
        raise Fault(
            Kind.DENIED, f"{place.res} is no place for an export.", suggested_fix="Use a folder such as build/."
        )
    return place


def _failed(done: Finished, what: str) -> Fault:
    found = [each.text for each in errors(done.lines)]
    templates = any("no export template" in line.lower() for line in done.lines)
    return Fault(
        Kind.UNSUPPORTED if templates else Kind.INTERNAL,
        f"{what} needs export templates that are not installed." if templates else f"{what} failed.",
        details={"exitCode": done.code, "errors": found[:20]},
        suggested_fix="Install the export templates of this engine's version." if templates else None,
    )


async def documents(job: Job) -> Outcome:
    """The reference of the project's own scripts; of the engine's classes where it has none."""
    place = job.place("outputPath", "docs/api")
    if job.text("format", "xml") != "xml":
        raise Fault(Kind.UNSUPPORTED, "The engine writes its reference as XML only.")
    await asyncio.to_thread(files.make_folder, place)
    start = job.project.inside(".")
    own = await asyncio.to_thread(lambda: any(files.walk(job.project, start, frozenset({".gd"}))))
    about = ("--gdscript-docs", "res://") if own else ()
    done = await job.desk.run(job.caller, job.project, ("--doctool", str(place.path), *about), _SECONDS)
    written = await asyncio.to_thread(lambda: list(files.walk(job.project, place, frozenset({".xml"}))))
    if done.code:
        raise _failed(done, "The documentation")
    return Outcome(f"Wrote {len(written)} pages.", {"outputPath": place.res, "pages": len(written)})


async def convert(job: Job) -> Outcome:
    """A project of Godot 3, in place or as a copy."""
    source = await asyncio.to_thread(job.desk.project, job.caller, job.text("sourcePath"))
    source.check()
    if job.get("targetPath"):
        target = await asyncio.to_thread(job.desk.project, job.caller, job.text("targetPath"))
        await asyncio.to_thread(_copy, source.root, target.root)
        source = target
    done = await job.desk.run(job.caller, source, ("--convert-3to4",), _SECONDS)
    if done.code:
        raise _failed(done, "The conversion")
    return Outcome("Converted the project.", {"projectPath": str(source.root), "output": done.lines[-50:]})


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        raise Fault(Kind.DENIED, "There is something at targetPath already.")
    shutil.copytree(source, target, symlinks=True)


async def validate_conversion(job: Job) -> Outcome:
    source = await asyncio.to_thread(job.desk.project, job.caller, job.text("sourcePath"))
    source.check()
    done = await job.desk.run(job.caller, source, ("--validate-conversion-3to4",), _SECONDS)
    if done.code:
        raise _failed(done, "The check")
    return Outcome("Checked what a conversion would change.", {"output": done.lines[-200:], "exitCode": done.code})
