"""Scene files: make, save, list, delete, duplicate, rename; their identifiers."""

import asyncio

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load, save, typed
from backends.godot.paths import OURS, Place
from backends.godot.text.scan import quoted
from backends.godot.text.scene import Scene, checked_name
from backends.godot.tool import Job
from gateway.errors import Fault, Kind

SCENES = frozenset({".tscn", ".scn"})
_HELD = frozenset({".tscn", ".tres"})
_SIDE_FILES = frozenset({".gd", ".gdshader"})
"""Whose identifier stands in a file beside them."""


async def create(job: Job) -> Outcome:
    place = job.scene()
    if place.path.suffix != ".tscn":
        raise Fault(Kind.INVALID_INPUT, "scenePath must end in .tscn.")
    made = await typed(job, {}, kind=job.text("rootNodeType", "Node2D"))
    name = checked_name(job.text("rootNodeName") or _titled(place.path.stem))
    uid = (await _new_uids(job, 1))[0] if job.desk.engine.present else None
    header = f"[gd_scene format=3{f' uid={quoted(uid)}' if uid else ''}]"
    scene = Scene(f"{header}\n\n[node name={quoted(name)} type={quoted(made.type)}]\n")
    if made.script:
        scene, reference = scene.with_external("Script", made.script)
        scene = scene.with_properties(".", {"script": reference})
    details = {"rootNodeType": made.type, "rootNodeName": name}
    return await save(job, place, None, scene, {".": {}}, f"Made {place.res}.", details)


def _titled(stem: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in stem).split()
    return "".join(word[:1].upper() + word[1:] for word in words) or "Root"


async def resave(job: Job) -> Outcome:
    """As the engine writes it today; the scene keeps its identifier, and a copy gets none of it."""
    place = job.scene()
    before = await load(job, place)
    target = job.place("newPath") if job.get("newPath") else place
    scratch = Place(job.project.root, job.project.root / OURS / "saving.tscn")
    await asyncio.to_thread(files.make_folder, Place(job.project.root, job.project.root / OURS))
    try:
        asked = {"scene": place.res, "output": scratch.res}
        await job.desk.ask(job.caller, job.project, "save_copy", asked)
        after = Scene(await asyncio.to_thread(files.read_text, scratch))
    finally:
        if files.exists(scratch):
            await asyncio.to_thread(files.delete, scratch)
    after = _known_again(before, after)
    uid = before.sections[0].string("uid") if target == place else None
    value = quoted(uid) if uid else None
    if value or after.sections[0].attribute("uid"):
        after = after.edited([after.with_attribute(after.sections[0], "uid", value)])
    earlier = before if target == place else None
    return await save(job, target, earlier, after, {}, f"Saved {target.res}.", {"savedPath": target.res})


def _known_again(before: Scene, after: Scene) -> Scene:
    """An engine without the editor's index writes no identifiers: those of what a scene uses are put back."""
    known = {section.string("path"): section.string("uid") for section in before.external()}
    edits: list[tuple[int, int, str]] = []
    for section in after.external():
        uid = known.get(section.string("path"))
        if uid and section.attribute("uid") is None:
            edits.append(after.with_attribute(section, "uid", quoted(uid)))
    return after.edited(edits)


def listing(job: Job) -> Outcome:
    start = job.place("directory", ".")
    found = files.walk(job.project, start, SCENES, recursive=job.get("recursive", True))
    scenes = [{"path": place.res, "name": place.path.stem, "bytes": place.path.stat().st_size} for place in found]
    return Outcome(f"There are {len(scenes)} scenes.", {"scenes": scenes})


async def get_uid(job: Job) -> Outcome:
    place = job.place("filePath")
    if not files.exists(place):
        raise Fault(Kind.NOT_FOUND, f"There is no file {place.res}.")
    uid = await asyncio.to_thread(_written_uid, place)
    if not uid and job.desk.engine.present:
        uid = str((await job.desk.ask(job.caller, job.project, "uid", {"path": place.res})).value["uid"])
    if not uid:
        raise Fault(Kind.NOT_FOUND, f"{place.res} has no UID yet.", suggested_fix="Call update_project_uids first.")
    return Outcome(f"{place.res} is {uid}.", {"filePath": place.res, "uid": uid})


def _written_uid(place: Place) -> str:
    if place.path.suffix in _HELD:
        return Scene(files.read_text(place)).sections[0].string("uid") or ""
    beside = _beside(place)
    return files.read_text(beside).strip() if files.exists(beside) else ""


def _beside(place: Place) -> Place:
    return Place(place.root, place.path.with_name(place.path.name + ".uid"))


async def update_uids(job: Job) -> Outcome:
    """Give an identifier to every scene, resource, script and shader that has none; nothing else is changed."""
    start = job.project.inside(".")
    found = await asyncio.to_thread(lambda: list(files.walk(job.project, start, _HELD | _SIDE_FILES)))
    without = [place for place in found if not await asyncio.to_thread(_written_uid, place)]
    uids = await _new_uids(job, len(without)) if without else []
    for index, (place, uid) in enumerate(zip(without, uids, strict=True)):
        await asyncio.to_thread(_give, place, uid)
        await job.report(index + 1, len(without), place.res)
    changed = [place.described("uid") for place in without]
    details = {"checked": len(found), "updated": [place.res for place in without]}
    return Outcome(f"{len(without)} of {len(found)} files got a UID.", details, files=tuple(changed))


def _give(place: Place, uid: str) -> None:
    if place.path.suffix in _SIDE_FILES:
        files.write_text(_beside(place), f"{uid}\n")
    else:
        scene = Scene(files.read_text(place))
        files.write_text(place, scene.edited([scene.with_attribute(scene.sections[0], "uid", quoted(uid))]).text)


async def _new_uids(job: Job, count: int) -> list[str]:
    return (await job.desk.ask(job.caller, job.project, "new_uids", {"count": count})).value["uids"]


def read(job: Job) -> Outcome:
    place = job.place("scenePath")
    text = files.read_text(place, "The scene").encode("utf-8", "replace").decode()
    kept = text[: int(job.get("maxChars", 12000))]
    return Outcome(
        f"{place.res} has {len(text)} characters.",
        {"scenePath": place.res, "content": kept, "truncated": len(kept) < len(text)},
    )


def delete(job: Job) -> Outcome:
    place = job.place("scenePath")
    if place.path.suffix not in SCENES:
        raise Fault(Kind.INVALID_INPUT, "scenePath is not a scene.")
    files.delete(place, "The scene")
    return Outcome(f"Deleted {place.res}.", {"scenePath": place.res})


def duplicate(job: Job) -> Outcome:
    """The copy has no identifier: two files may not share one."""
    source, target = job.place("sourceScenePath"), job.place("destScenePath")
    scene = Scene(files.read_text(source, "The scene"))
    if scene.sections[0].attribute("uid") is not None:
        scene = scene.edited([scene.with_attribute(scene.sections[0], "uid", None)])
    size = files.write_text(target, scene.text, overwrite=False)
    return Outcome(
        f"Copied {source.res} to {target.res}.", {"scenePath": target.res}, files=(target.described("scene", size),)
    )


def rename(job: Job) -> Outcome:
    """Every text resource that names the scene by path is told its new one."""
    source, target = job.place("scenePath"), job.place("newScenePath")
    if not files.exists(source):
        raise Fault(Kind.NOT_FOUND, f"There is no scene {source.res}.")
    files.rename(source, target)
    told = [
        place.res for place in files.walk(job.project, job.project.inside("."), _HELD) if _retold(place, source, target)
    ]
    return Outcome(f"Renamed {source.res} to {target.res}.", {"scenePath": target.res, "updated": told})


def _retold(place: Place, source: Place, target: Place) -> bool:
    return repointed(place, source.res, target.res) > 0


def repointed(place: Place, old: str, new: str) -> int:
    """How many external resources of a text file led to `old` and lead to `new` now."""
    scene = Scene(files.read_text(place))
    edits: list[tuple[int, int, str]] = []
    for section in scene.external():
        if section.string("path") == old:
            edits.append(scene.with_attribute(section, "path", quoted(new)))
    if edits:
        files.write_text(place, scene.edited(edits).text)
    return len(edits)


def replace_resource(job: Job) -> Outcome:
    place, old, new = job.place("scenePath"), job.place("oldResource"), job.place("newResource")
    if not files.exists(new):
        raise Fault(Kind.NOT_FOUND, f"There is no resource {new.res}.")
    scene = Scene(files.read_text(place, "The scene"))
    edits: list[tuple[int, int, str]] = []
    count = 0
    for section in scene.external():
        if section.string("path") == old.res:
            count += 1
            edits.append(scene.with_attribute(section, "path", quoted(new.res)))
            if section.attribute("uid") is not None:  # it would lead to the old one
                edits.append(scene.with_attribute(section, "uid", None))
    if not count:
        raise Fault(Kind.NOT_FOUND, f"{place.res} does not use {old.res}.")
    files.write_text(place, scene.edited(edits).text)
    return Outcome(f"Replaced {old.res} in {place.res}.", {"scenePath": place.res, "replacements": count})
