"""Handlers for scene files and UIDs: create, save, list, delete, duplicate, rename."""

import asyncio

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load_scene, save_scene, settle_new
from backends.godot.paths import DATA_FOLDER, ProjectPath
from backends.godot.text.scan import quote
from backends.godot.text.scene import Scene, validate_name
from backends.godot.tool import ToolCall
from gateway.errors import Fault, Kind

SCENES = frozenset({".tscn", ".scn"})
_TEXT_RESOURCES = frozenset({".tscn", ".tres"})
_SIDE_FILES = frozenset({".gd", ".gdshader"})
"""Files whose UID is stored in a separate `.uid` file."""


async def create(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    if location.path.suffix != ".tscn":
        raise Fault(Kind.INVALID_INPUT, "scenePath must end in .tscn.")
    made = await settle_new(call, call.text("rootNodeType", "Node2D"), {})
    name = validate_name(call.text("rootNodeName") or _title_case(location.path.stem))
    uid = (await _new_uids(call, 1))[0] if call.services.engine.is_available else None
    header = f"[gd_scene format=3{f' uid={quote(uid)}' if uid else ''}]"
    scene = Scene(f"{header}\n\n[node name={quote(name)} type={quote(made.type)}]\n")
    if made.script:
        scene, reference = scene.with_external("Script", made.script)
        scene = scene.with_properties(".", {"script": reference})
    details = {"rootNodeType": made.type, "rootNodeName": name}
    return await save_scene(call, location, None, scene, {".": {}}, f"Created {location.res}.", details)


def _title_case(stem: str) -> str:
    words = "".join(character if character.isalnum() else " " for character in stem).split()
    return "".join(word[:1].upper() + word[1:] for word in words) or "Root"


async def resave(call: ToolCall) -> Outcome:
    """Save the scene in the engine's current format. The scene keeps its UID; a copy gets none."""
    location = call.resolve_scene_path()
    before = await load_scene(call, location, writable=False)
    target = call.resolve_path("newPath") if call.get("newPath") else location
    scratch = ProjectPath(call.project.root, call.project.root / DATA_FOLDER / "saving.tscn")
    await asyncio.to_thread(files.make_folder, ProjectPath(call.project.root, call.project.root / DATA_FOLDER))
    try:
        params = {"scene": location.res, "output": scratch.res}
        await call.services.run_operation(call.caller, call.project, "save_copy", params)
        after = Scene(await asyncio.to_thread(files.read_text, scratch))
    finally:
        if files.exists(scratch):
            await asyncio.to_thread(files.delete, scratch)
    after = _restore_uids(before, after)
    uid = before.sections[0].string("uid") if target == location else None
    value = quote(uid) if uid else None
    if value or after.sections[0].attribute("uid"):
        after = after.apply_edits([after.attribute_edit(after.sections[0], "uid", value)])
    existing = before if target == location else None
    return await save_scene(call, target, existing, after, {}, f"Saved {target.res}.", {"savedPath": target.res})


def _restore_uids(before: Scene, after: Scene) -> Scene:
    """Restore the UIDs of external resources, which an engine without the editor's index does not write."""
    known = {section.string("path"): section.string("uid") for section in before.external_resources()}
    edits: list[tuple[int, int, str]] = []
    for section in after.external_resources():
        uid = known.get(section.string("path"))
        if uid and section.attribute("uid") is None:
            edits.append(after.attribute_edit(section, "uid", quote(uid)))
    return after.apply_edits(edits)


def list_scenes(call: ToolCall) -> Outcome:
    start = call.resolve_path("directory", ".")
    found = files.walk(call.project, start, SCENES, recursive=call.get("recursive", True))
    scenes = [
        {"path": location.res, "name": location.path.stem, "bytes": location.path.stat().st_size} for location in found
    ]
    return Outcome(f"There are {len(scenes)} scenes.", {"scenes": scenes})


async def get_uid(call: ToolCall) -> Outcome:
    location = call.resolve_path("filePath")
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no file {location.res}.")
    uid = await asyncio.to_thread(_read_uid, location)
    if not uid and call.services.engine.is_available:
        uid = str(
            (await call.services.run_operation(call.caller, call.project, "uid", {"path": location.res})).value["uid"]
        )
    if not uid:
        raise Fault(Kind.NOT_FOUND, f"{location.res} has no UID yet.", suggested_fix="Call update_project_uids first.")
    return Outcome(f"{location.res} is {uid}.", {"filePath": location.res, "uid": uid})


def _read_uid(location: ProjectPath) -> str:
    if location.path.suffix in _TEXT_RESOURCES:
        return Scene(files.read_text(location)).sections[0].string("uid") or ""
    uid_file = _uid_file(location)
    return files.read_text(uid_file).strip() if files.exists(uid_file) else ""


def _uid_file(location: ProjectPath) -> ProjectPath:
    return ProjectPath(location.root, location.path.with_name(location.path.name + ".uid"))


async def update_uids(call: ToolCall) -> Outcome:
    """Assign a UID to every scene, resource, script and shader that has none, without other changes."""
    start = call.project.resolve(".")
    found = await asyncio.to_thread(lambda: list(files.walk(call.project, start, _TEXT_RESOURCES | _SIDE_FILES)))
    missing = [location for location in found if not await asyncio.to_thread(_read_uid, location)]
    uids = await _new_uids(call, len(missing)) if missing else []
    for index, (location, uid) in enumerate(zip(missing, uids, strict=True)):
        await asyncio.to_thread(_write_uid, location, uid)
        await call.report_progress(index + 1, len(missing), location.res)
    changed = [location.describe("uid") for location in missing]
    details = {"checked": len(found), "updated": [location.res for location in missing]}
    return Outcome(f"{len(missing)} of {len(found)} files got a UID.", details, files=tuple(changed))


def _write_uid(location: ProjectPath, uid: str) -> None:
    if location.path.suffix in _SIDE_FILES:
        files.write_text(_uid_file(location), f"{uid}\n")
    else:
        scene = Scene(files.read_text(location))
        files.write_text(location, scene.apply_edits([scene.attribute_edit(scene.sections[0], "uid", quote(uid))]).text)


async def _new_uids(call: ToolCall, count: int) -> list[str]:
    return (await call.services.run_operation(call.caller, call.project, "new_uids", {"count": count})).value["uids"]


def read(call: ToolCall) -> Outcome:
    location = call.resolve_path("scenePath")
    text = files.read_text(location, "The scene").encode("utf-8", "replace").decode()
    content = text[: int(call.get("maxChars", 12000))]
    return Outcome(
        f"{location.res} has {len(text)} characters.",
        {"scenePath": location.res, "content": content, "truncated": len(content) < len(text)},
    )


def delete(call: ToolCall) -> Outcome:
    location = call.resolve_path("scenePath")
    if location.path.suffix not in SCENES:
        raise Fault(Kind.INVALID_INPUT, "scenePath is not a scene.")
    files.delete(location, "The scene")
    return Outcome(f"Deleted {location.res}.", {"scenePath": location.res})


def duplicate(call: ToolCall) -> Outcome:
    """Copy a scene without its UID, because two files must not share one."""
    source, target = call.resolve_path("sourceScenePath"), call.resolve_path("destScenePath")
    scene = Scene(files.read_text(source, "The scene"))
    if scene.sections[0].attribute("uid") is not None:
        scene = scene.apply_edits([scene.attribute_edit(scene.sections[0], "uid", None)])
    size = files.write_text(target, scene.text, overwrite=False)
    return Outcome(
        f"Copied {source.res} to {target.res}.", {"scenePath": target.res}, files=(target.describe("scene", size),)
    )


def rename(call: ToolCall) -> Outcome:
    """Rename a scene and update its path in all text resources that refer to it."""
    source, target = call.resolve_path("scenePath"), call.resolve_path("newScenePath")
    if not files.exists(source):
        raise Fault(Kind.NOT_FOUND, f"There is no scene {source.res}.")
    files.rename(source, target)
    updated = [
        location.res
        for location in files.walk(call.project, call.project.resolve("."), _TEXT_RESOURCES)
        if _update_references(location, source, target)
    ]
    return Outcome(f"Renamed {source.res} to {target.res}.", {"scenePath": target.res, "updated": updated})


def _update_references(location: ProjectPath, source: ProjectPath, target: ProjectPath) -> bool:
    return replace_reference(location, source.res, target.res) > 0


def replace_reference(location: ProjectPath, old: str, new: str) -> int:
    """Replace the path `old` with `new` in a file's external resources. Returns the number of replacements."""
    scene = Scene(files.read_text(location))
    edits: list[tuple[int, int, str]] = []
    for section in scene.external_resources():
        if section.string("path") == old:
            edits.append(scene.attribute_edit(section, "path", quote(new)))
    if edits:
        files.write_text(location, scene.apply_edits(edits).text)
    return len(edits)


def replace_resource(call: ToolCall) -> Outcome:
    location, old, new = (
        call.resolve_path("scenePath"),
        call.resolve_path("oldResource"),
        call.resolve_path("newResource"),
    )
    if not files.exists(new):
        raise Fault(Kind.NOT_FOUND, f"There is no resource {new.res}.")
    scene = Scene(files.read_text(location, "The scene"))
    edits: list[tuple[int, int, str]] = []
    count = 0
    for section in scene.external_resources():
        if section.string("path") == old.res:
            count += 1
            edits.append(scene.attribute_edit(section, "path", quote(new.res)))
            if section.attribute("uid") is not None:  # The UID still identifies the old resource.
                edits.append(scene.attribute_edit(section, "uid", None))
    if not count:
        raise Fault(Kind.NOT_FOUND, f"{location.res} does not use {old.res}.")
    files.write_text(location, scene.apply_edits(edits).text)
    return Outcome(f"Replaced {old.res} in {location.res}.", {"scenePath": location.res, "replacements": count})
