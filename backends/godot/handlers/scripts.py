"""Scripts and other text files of a project."""

import asyncio
import base64
import binascii
import json
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.projects import SCRIPTS, script_errors
from backends.godot.paths import OURS, PROJECT_FILE, Place
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

TEMPLATES: Final[Mapping[str, str]] = {
    "basic_node": "extends Node\n{name}\n\nfunc _ready() -> void:\n\tpass\n",
    "basic_node2d": "extends Node2D\n{name}\n\nfunc _process(_delta: float) -> void:\n\tpass\n",
    "character_2d": (
        "extends CharacterBody2D\n{name}\n@export var speed := 200.0\n\n\n"
        "func _physics_process(_delta: float) -> void:\n"
        '\tvelocity = Input.get_vector("ui_left", "ui_right", "ui_up", "ui_down") * speed\n\tmove_and_slide()\n'
    ),
    "resource": "extends Resource\n{name}\n",
}
_CLASS_NAME: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_TEXT: Final = frozenset(
    {
        ".gd",
        ".cs",
        ".tscn",
        ".tres",
        ".gdshader",
        ".gdshaderinc",
        ".cfg",
        ".json",
        ".md",
        ".txt",
        ".csv",
        ".godot",
        ".import",
    }
)
_SHOWN: Final = 400
_REPLACING: Final = Path(__file__).parents[1] / "regex_replace.py"
_REGEX_SECONDS: Final = 2.0


def _script(job: Job, name: str = "scriptPath") -> Place:
    place = job.place(name)
    if place.path.suffix not in SCRIPTS:
        raise Fault(Kind.INVALID_INPUT, f"{name} must end in .gd or .cs.")
    return place


def listing(job: Job) -> Outcome:
    found = files.walk(job.project, job.place("directory", "."), SCRIPTS)
    scripts = [{"path": place.res, "name": place.path.name, "bytes": place.path.stat().st_size} for place in found]
    return Outcome(f"There are {len(scripts)} scripts.", {"scripts": scripts})


def _as_text(place: Place, what: str) -> str:
    try:
        return files.read(place, what).decode()
    except UnicodeDecodeError as exc:
        raise Fault(Kind.UNSUPPORTED, f"{place.res} is not text.") from exc


def read(job: Job) -> Outcome:
    place = _script(job)
    text = _as_text(place, "The script")
    kept = text[: int(job.get("maxChars", files.MAX_READ))]
    details: Json = {"scriptPath": place.res, "content": kept, "lines": len(text.splitlines())}
    return Outcome(f"{place.res} has {details['lines']} lines.", {**details, "truncated": len(kept) < len(text)})


async def write(job: Job) -> Outcome:
    place = _script(job)
    size = await asyncio.to_thread(
        files.write_text, place, job.text("content"), overwrite=bool(job.get("overwrite", False))
    )
    problems = await _checked(job, place)
    warnings = tuple(f"line {each.get('line', '?')}: {each['message']}" for each in problems)
    details: Json = {"scriptPath": place.res, "bytes": size, "errors": problems}
    return Outcome(f"Wrote {place.res}.", details, warnings=warnings, files=(place.described("script", size),))


async def _checked(job: Job, place: Place) -> list[Json]:
    """A script is written also when it does not compile yet; the caller is told."""
    if not job.desk.engine.present or place.path.suffix != ".gd":
        return []
    return await script_errors(job, place.res)


async def create(job: Job) -> Outcome:
    """From the content given, or from a template."""
    place = _script(job)
    content = job.get("content")
    if content is None:
        template, name = job.text("template", "basic_node"), job.text("className")
        if template not in TEMPLATES:
            raise Fault(Kind.NOT_FOUND, f"There is no template {template!r}.", details={"templates": list(TEMPLATES)})
        if name and not _CLASS_NAME.fullmatch(name):
            raise Fault(Kind.INVALID_INPUT, "className is a letter or _, then letters, digits and _.")
        content = TEMPLATES[template].format(name=f"class_name {name}\n" if name else "")
    outcome = await write(job.with_(content=content))
    more: Json = {"absolutePath": str(place.path), "wrote": True, "changed": True}
    return Outcome(outcome.summary, {**outcome.details, **more}, warnings=outcome.warnings, files=outcome.files)


def delete(job: Job) -> Outcome:
    """Refused while a scene uses it, unless forced."""
    place = _script(job)
    users = [
        each.res
        for each in files.walk(job.project, job.project.inside("."), frozenset({".tscn", ".tres"}))
        if f'path="{place.res}"' in files.read_text(each)
    ]
    if users and not job.get("force", False):
        raise Fault(
            Kind.DENIED,
            f"{place.res} is used by {len(users)} files.",
            details={"usedBy": users},
            suggested_fix="Detach it first, or repeat the call with force: true.",
        )
    files.delete(place, "The script")
    beside = Place(place.root, place.path.with_name(place.path.name + ".uid"))
    if files.exists(beside):
        files.delete(beside)
    return Outcome(f"Deleted {place.res}.", {"scriptPath": place.res, "usedBy": users})


async def check(job: Job) -> Outcome:
    if job.get("scriptPath"):
        places = [_script(job)]
        if not files.exists(places[0]):
            raise Fault(Kind.NOT_FOUND, f"There is no script {places[0].res}.")
    else:
        start = job.project.inside(".")
        places = await asyncio.to_thread(lambda: list(files.walk(job.project, start, frozenset({".gd"}))))
    found: list[Json] = []
    for index, place in enumerate(places):
        found += await script_errors(job, place.res)
        await job.report(index + 1, len(places), place.res)
    return Outcome(f"{len(found)} errors in {len(places)} scripts.", {"errors": found, "checked": len(places)})


async def evaluate(job: Job) -> Outcome:
    """One expression of the engine's own kind: no loops, no statements, no singletons."""
    given = job.get("expression") or job.text("code")
    if "\n" in given.strip():
        raise Fault(Kind.INVALID_INPUT, "An expression is one line.")
    names: Json = {**job.get("vars", {}), **job.get("variables", {})}
    asked: Json = {"expression": given, "names": list(names), "values": list(names.values())}
    done = await job.desk.ask(job.caller, job.project, "evaluate", asked)
    return Outcome(f"It is {done.value['value']}.", {"value": done.value["json"], **done.value})


def shader(job: Job) -> Outcome:
    place = job.place("shaderPath")
    if place.path.suffix not in (".gdshader", ".gdshaderinc"):
        raise Fault(Kind.INVALID_INPUT, "shaderPath must end in .gdshader.")
    size = files.write_text(place, job.text("content"), overwrite=bool(job.get("overwrite", False)))
    return Outcome(f"Wrote {place.res}.", {"shaderPath": place.res}, files=(place.described("shader", size),))


async def edit(job: Job) -> Outcome:
    """Find and replace; with `dryRun` it only shows what would change."""
    place = _editable(job)
    before = await asyncio.to_thread(_as_text, place, "The file")
    after, count = await _replaced(job, before)
    if not count:
        raise Fault(Kind.NOT_FOUND, f"{place.res} does not hold what to find.")
    at = next((index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    start = max(at - 80, 0)
    preview = {"before": before[start : start + _SHOWN], "after": after[start : start + _SHOWN]}
    changed, dry = before != after, bool(job.get("dryRun", False))
    if changed and not dry:
        await asyncio.to_thread(files.write_text, place, after)
    verb = "Would replace" if dry else "Replaced"
    details: Json = {"filePath": place.res, "changed": changed and not dry, "replacements": count, "preview": preview}
    return Outcome(f"{verb} {count} in {place.res}.", details)


async def _replaced(job: Job, text: str) -> tuple[str, int]:
    find, new, most = job.text("find"), job.text("replace"), int(job.get("maxReplacements", 50))
    if not find:
        raise Fault(Kind.INVALID_INPUT, "find is empty.")
    if not job.get("regex", False):
        return text.replace(find, new, most), min(text.count(find), most)
    asked = json.dumps({"find": find, "replace": new, "text": text, "most": most}).encode()
    command = (sys.executable, "-I", str(_REPLACING))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        async with asyncio.timeout(_REGEX_SECONDS):
            out, _ = await process.communicate(asked)
    except TimeoutError as exc:
        raise Fault(Kind.TIMEOUT, "The pattern did not come to an end.", suggested_fix="Use a simpler one.") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Fault(Kind.INVALID_INPUT, "find or replace is not a regular expression.")
    done = json.loads(out)
    return done["text"], done["count"]


def _editable(job: Job) -> Place:
    place = job.place("filePath")
    if place.path.suffix.lower() not in _TEXT:
        raise Fault(Kind.UNSUPPORTED, f"{place.res} is not a kind of file that is edited as text.")
    if place.parts[0] in (OURS, ".godot", ".git"):
        raise Fault(Kind.DENIED, f"{place.res} is not the project's own to edit.")
    return place


def write_binary(job: Job) -> Outcome:
    place = job.place("filePath")
    if not place.parts or place.parts[0] in (OURS, ".godot", ".git") or place.relative == PROJECT_FILE:
        raise Fault(Kind.DENIED, f"{place.res} may not be written like this.")
    try:
        data = base64.b64decode(job.text("base64"), validate=True)
    except binascii.Error as exc:
        raise Fault(Kind.INVALID_INPUT, "base64 is not base64.") from exc
    size = files.write(place, data, overwrite=bool(job.get("overwrite", False)))
    return Outcome(
        f"Wrote {place.res}.", {"filePath": place.res, "bytes": size}, files=(place.described("file", size),)
    )


def read_text(job: Job) -> Outcome:
    place: Any = job.place("filePath")
    return Outcome(f"Read {place.res}.", {"filePath": place.res, "content": _as_text(place, "The file")})


def write_text(job: Job) -> Outcome:
    place = _editable(job)
    size = files.write_text(place, job.text("content"), overwrite=bool(job.get("overwrite", False)))
    return Outcome(
        f"Wrote {place.res}.", {"filePath": place.res, "bytes": size}, files=(place.described("file", size),)
    )
