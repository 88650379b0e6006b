"""Handlers for scripts, shaders and other text files of a project."""

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
from backends.godot.engine.messages import parse_shader_errors
from backends.godot.envelope import Outcome
from backends.godot.handlers.projects import SCRIPTS, script_errors
from backends.godot.paths import DATA_FOLDER, PROJECT_FILE, ProjectPath
from backends.godot.tool import ToolCall
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
_TEXT_SUFFIXES: Final = frozenset(
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
_PREVIEW_CHARS: Final = 400
_REGEX_SCRIPT: Final = Path(__file__).parents[1] / "regex_replace.py"
_REGEX_SECONDS: Final = 2.0


def _script_path(call: ToolCall, name: str = "scriptPath") -> ProjectPath:
    location = call.resolve_path(name)
    if location.path.suffix not in SCRIPTS:
        raise Fault(Kind.INVALID_INPUT, f"{name} must end in .gd or .cs.")
    return location


def list_scripts(call: ToolCall) -> Outcome:
    found = files.walk(call.project, call.resolve_path("directory", "."), SCRIPTS)
    scripts = [
        {"path": location.res, "name": location.path.name, "bytes": location.path.stat().st_size} for location in found
    ]
    return Outcome(f"There are {len(scripts)} scripts.", {"scripts": scripts})


def _decode_text(location: ProjectPath, label: str) -> str:
    try:
        return files.read(location, label).decode()
    except UnicodeDecodeError as exc:
        raise Fault(Kind.UNSUPPORTED, f"{location.res} is not text.") from exc


def read(call: ToolCall) -> Outcome:
    location = _script_path(call)
    text = _decode_text(location, "The script")
    content = text[: int(call.get("maxChars", files.MAX_READ))]
    details: Json = {"scriptPath": location.res, "content": content, "lines": len(text.splitlines())}
    return Outcome(f"{location.res} has {details['lines']} lines.", {**details, "truncated": len(content) < len(text)})


async def write(call: ToolCall) -> Outcome:
    location = _script_path(call)
    before = await asyncio.to_thread(files.read, location) if files.exists(location) else None
    size = await asyncio.to_thread(
        files.write_text, location, call.text("content"), overwrite=bool(call.get("overwrite", False))
    )
    try:
        problems = await _check_compiles(call, location)
    except (Fault, asyncio.CancelledError):
        # A call that fails changes nothing. A cancelled task cannot await, so this is synchronous.
        _put_back(location, before)
        raise
    warnings = tuple(f"line {each.get('line', '?')}: {each['message']}" for each in problems)
    details: Json = {"scriptPath": location.res, "bytes": size, "errors": problems}
    return Outcome(f"Wrote {location.res}.", details, warnings=warnings, files=(location.describe("script", size),))


def _put_back(location: ProjectPath, before: bytes | None) -> None:
    if before is None:
        files.delete(location)
    else:
        files.write(location, before)


async def _check_compiles(call: ToolCall, location: ProjectPath) -> list[Json]:
    """Return the compiler errors. A script that does not compile is written anyway."""
    if not call.services.engine.is_available or location.path.suffix != ".gd":
        return []
    return await script_errors(call, location.res)


async def create(call: ToolCall) -> Outcome:
    """Create a script from `content` or from a template."""
    location = _script_path(call)
    content = call.get("content")
    if content is None:
        template, name = call.text("template", "basic_node"), call.text("className")
        if template not in TEMPLATES:
            raise Fault(Kind.NOT_FOUND, f"There is no template {template!r}.", details={"templates": list(TEMPLATES)})
        if name and not _CLASS_NAME.fullmatch(name):
            raise Fault(
                Kind.INVALID_INPUT, "className must start with a letter or _ and contain only letters, digits and _."
            )
        content = TEMPLATES[template].format(name=f"class_name {name}\n" if name else "")
    outcome = await write(call.with_arguments(content=content))
    extra: Json = {"absolutePath": str(location.path), "wrote": True, "changed": True}
    return Outcome(outcome.summary, {**outcome.details, **extra}, warnings=outcome.warnings, files=outcome.files)


def delete(call: ToolCall) -> Outcome:
    """Delete a script. Raises `Fault(DENIED)` while a scene uses it, unless `force` is set."""
    location = _script_path(call)
    users = [
        each.res
        for each in files.walk(call.project, call.project.resolve("."), frozenset({".tscn", ".tres"}))
        if f'path="{location.res}"' in files.read_text(each)
    ]
    if users and not call.get("force", False):
        raise Fault(
            Kind.DENIED,
            f"{location.res} is used by {len(users)} files.",
            details={"usedBy": users},
            suggested_fix="Detach it first, or repeat the call with force: true.",
        )
    files.delete(location, "The script")
    uid_file = ProjectPath(location.root, location.path.with_name(location.path.name + ".uid"))
    if files.exists(uid_file):
        files.delete(uid_file)
    return Outcome(f"Deleted {location.res}.", {"scriptPath": location.res, "usedBy": users})


async def check(call: ToolCall) -> Outcome:
    if call.get("scriptPath"):
        locations = [_script_path(call)]
        if not files.exists(locations[0]):
            raise Fault(Kind.NOT_FOUND, f"There is no script {locations[0].res}.")
    else:
        start = call.project.resolve(".")
        locations = await asyncio.to_thread(lambda: list(files.walk(call.project, start, frozenset({".gd"}))))
    found: list[Json] = []
    for index, location in enumerate(locations):
        found += await script_errors(call, location.res)
        await call.report_progress(index + 1, len(locations), location.res)
    return Outcome(f"{len(found)} errors in {len(locations)} scripts.", {"errors": found, "checked": len(locations)})


async def evaluate(call: ToolCall) -> Outcome:
    """Evaluate one Godot `Expression`: no loops, no statements, no singletons."""
    expression = call.get("expression") or call.text("code")
    if "\n" in expression.strip():
        raise Fault(Kind.INVALID_INPUT, "An expression must be a single line.")
    names: Json = {**call.get("vars", {}), **call.get("variables", {})}
    request: Json = {"expression": expression, "names": list(names), "values": list(names.values())}
    result = await call.services.run_operation(call.caller, call.project, "evaluate", request)
    return Outcome(f"The result is {result.value['value']}.", {"value": result.value["json"], **result.value})


async def write_shader(call: ToolCall) -> Outcome:
    """Write a shader and have the engine compile it. A shader with errors is kept, with the errors in the answer."""
    location = call.resolve_path("shaderPath")
    if location.path.suffix not in (".gdshader", ".gdshaderinc"):
        raise Fault(Kind.INVALID_INPUT, "shaderPath must end in .gdshader.")
    before = await asyncio.to_thread(files.read, location) if files.exists(location) else None
    size = await asyncio.to_thread(
        files.write_text, location, call.text("content"), overwrite=bool(call.get("overwrite", False))
    )
    details: Json = {"shaderPath": location.res, "bytes": size}
    warnings: tuple[str, ...] = ()
    if call.services.engine.is_available and location.path.suffix == ".gdshader":
        try:
            params = {"path": location.res}
            found = await call.services.run_operation(call.caller, call.project, "compile_shader", params)
        except (Fault, asyncio.CancelledError):
            _put_back(location, before)
            raise
        errors = [each.as_json() for each in parse_shader_errors(list(found.output))]
        details |= {"errors": errors, "uniforms": found.value["uniforms"], "compiles": not errors}
        warnings = tuple(f"line {each.get('line', '?')}: {each['message']}" for each in errors)
    shown = location.describe("shader", size)
    return Outcome(f"Wrote {location.res}.", details, warnings=warnings, files=(shown,))


async def create_shader(call: ToolCall) -> Outcome:
    """Compose a shader of its parts."""
    modes: list[str] = call.get("renderMode", [])
    parts = [f"shader_type {call.text('shaderType')};"]
    if modes:
        parts.append(f"render_mode {', '.join(modes)};")
    stages = {"vertexCode": "vertex", "fragmentCode": "fragment", "lightCode": "light"}
    if call.text("shaderType") in ("particles", "sky", "fog"):
        stages = {
            "vertexCode": "start",
            "fragmentCode": {"particles": "process"}.get(call.text("shaderType"), call.text("shaderType")),
        }
    for argument, name in stages.items():
        if code := call.get(argument):
            body = "\n".join(f"\t{line}" if line.strip() else "" for line in str(code).strip("\n").splitlines())
            # Code that declares functions or uniforms itself is taken as it is.
            parts.append(str(code) if "void " in str(code) else f"void {name}() {{\n{body}\n}}")
    return await write_shader(call.with_arguments(content="\n\n".join(parts) + "\n"))


async def edit_text(call: ToolCall) -> Outcome:
    """Find and replace text. `dryRun` only returns a preview."""
    location = _editable_path(call)
    before = await asyncio.to_thread(_decode_text, location, "The file")
    after, count = await _replace(call, before)
    if not count:
        raise Fault(Kind.NOT_FOUND, f"{location.res} does not contain the text to find.")
    at = next((index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    start = max(at - 80, 0)
    preview = {"before": before[start : start + _PREVIEW_CHARS], "after": after[start : start + _PREVIEW_CHARS]}
    changed, dry = before != after, bool(call.get("dryRun", False))
    if changed and not dry:
        await asyncio.to_thread(files.write_text, location, after)
    verb = "Would replace" if dry else "Replaced"
    details: Json = {
        "filePath": location.res,
        "changed": changed and not dry,
        "replacements": count,
        "preview": preview,
    }
    return Outcome(f"{verb} {count} in {location.res}.", details)


async def _replace(call: ToolCall, text: str) -> tuple[str, int]:
    find, replacement, limit = call.text("find"), call.text("replace"), int(call.get("maxReplacements", 50))
    if not find:
        raise Fault(Kind.INVALID_INPUT, "find is empty.")
    if not call.get("regex", False):
        return text.replace(find, replacement, limit), min(text.count(find), limit)
    request = json.dumps({"find": find, "replace": replacement, "text": text, "limit": limit}).encode()
    command = (sys.executable, "-I", str(_REGEX_SCRIPT))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        async with asyncio.timeout(_REGEX_SECONDS):
            out, _ = await process.communicate(request)
    except TimeoutError as exc:
        raise Fault(Kind.TIMEOUT, "The pattern search timed out.", suggested_fix="Use a simpler pattern.") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Fault(Kind.INVALID_INPUT, "find or replace is not a regular expression.")
    result = json.loads(out)
    return result["text"], result["count"]


def _editable_path(call: ToolCall) -> ProjectPath:
    location = call.resolve_path("filePath")
    if location.path.suffix.lower() not in _TEXT_SUFFIXES:
        raise Fault(Kind.UNSUPPORTED, f"{location.res} is not a text file type that can be edited.")
    if location.parts[0] in (DATA_FOLDER, ".godot", ".git"):
        raise Fault(Kind.DENIED, f"{location.res} is in a folder that must not be edited.")
    return location


def write_binary(call: ToolCall) -> Outcome:
    location = call.resolve_path("filePath")
    if not location.parts or location.parts[0] in (DATA_FOLDER, ".godot", ".git") or location.relative == PROJECT_FILE:
        raise Fault(Kind.DENIED, f"{location.res} must not be written with this tool.")
    try:
        data = base64.b64decode(call.text("base64"), validate=True)
    except binascii.Error as exc:
        raise Fault(Kind.INVALID_INPUT, "base64 is not valid base64.") from exc
    size = files.write(location, data, overwrite=bool(call.get("overwrite", False)))
    return Outcome(
        f"Wrote {location.res}.", {"filePath": location.res, "bytes": size}, files=(location.describe("file", size),)
    )


def read_text(call: ToolCall) -> Outcome:
    location: Any = call.resolve_path("filePath")
    return Outcome(f"Read {location.res}.", {"filePath": location.res, "content": _decode_text(location, "The file")})


def write_text(call: ToolCall) -> Outcome:
    location = _editable_path(call)
    size = files.write_text(location, call.text("content"), overwrite=bool(call.get("overwrite", False)))
    return Outcome(
        f"Wrote {location.res}.", {"filePath": location.res, "bytes": size}, files=(location.describe("file", size),)
    )
