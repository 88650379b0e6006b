"""How a scene is changed: values as the engine writes them, the file edited by span, and read back before success."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.paths import Place
from backends.godot.text.literal import literal
from backends.godot.text.scan import quoted
from backends.godot.text.scene import Scene
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

_CLASS = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_ENGINE = "No engine is here: the file was checked by its form only."


@dataclass(frozen=True, slots=True)
class Typed:
    """Property values, settled by the engine where there is one."""

    type: str
    script: str = ""
    values: Mapping[str, Json] = field(default_factory=dict[str, Json])


async def load(job: Job, place: Place) -> Scene:
    if place.path.suffix not in (".tscn", ".tres"):
        raise Fault(Kind.UNSUPPORTED, "Only scenes in text form (.tscn) can be worked on.")
    try:
        text = await asyncio.to_thread(files.read_text, place, "The scene")
    except Fault as fault:
        if fault.kind is Kind.NOT_FOUND:
            fault.suggested_fix = "Make it with create_scene first, or call list_scenes to see what there is."
        raise
    scene = Scene(text)
    if not scene.nodes:
        raise Fault(Kind.INVALID_INPUT, f"{place.res} has no nodes.")
    return scene


async def typed(job: Job, properties: Json, *, kind: str = "", at: tuple[Place, str] | None = None) -> Typed:
    """The values for a new object of a class, or for a node of a scene."""
    for name, value in properties.items():
        _confine(job, name, value)
    if not job.desk.engine.present:
        if at is None and not _CLASS.fullmatch(kind):
            raise Fault(Kind.INVALID_INPUT, f"{kind!r} is not the name of a class.")
        return Typed(kind, values={name: _unaided(job, value) for name, value in properties.items()})
    asked: Json = {"properties": {name: _at_home(job, value) for name, value in properties.items()}}
    asked |= {"scene": at[0].res, "node": at[1]} if at else {"class": kind}
    value = (await job.desk.ask(job.caller, job.project, "values", asked)).value
    return Typed(value["class"], value["script"], value["values"])


def _confine(job: Job, name: str, value: Any) -> None:
    """No value may name a resource outside the project."""
    if isinstance(value, dict):
        for key, held in cast("Json", value).items():
            _confine(job, name, held)
            if key == "$resource" and isinstance(held, str) and ("/" in held or "\\" in held):
                job.project.inside(held, name)
    elif isinstance(value, list):
        for held in cast("list[Any]", value):
            _confine(job, name, held)
    elif isinstance(value, str) and value.startswith(("res://", "user://", "uid://", "file://")):
        job.project.inside(value, name)


def _resource_named(value: Any) -> str | None:
    """The path of a `{"$resource": path}`; a class there is none."""
    named: Any = cast("Json", value).get("$resource") if isinstance(value, dict) else None
    return named if isinstance(named, str) and "/" in named else None


def _at_home(job: Job, value: Any) -> Any:
    """Resources named by a path in the project, as the engine names them."""
    named = _resource_named(value)
    return {**cast("Json", value), "$resource": job.project.inside(named).res} if named else value


def _unaided(job: Job, value: Any) -> Json:
    named = _resource_named(value)
    if named is None and isinstance(value, str) and value.startswith("res://"):
        named = value
    if named is None:
        return {"text": literal(value)}
    place = job.project.inside(named)
    if not files.exists(place):
        raise Fault(Kind.NOT_FOUND, f"There is no resource {place.res}.")
    return {"resource": place.res, "class": resource_class(place), "uid": ""}


def resource_class(place: Place) -> str:
    """What a file holds, by its name."""
    match place.path.suffix.lower():
        case ".gd" | ".cs":
            return "Script"
        case ".tscn" | ".scn":
            return "PackedScene"
        case ".png" | ".jpg" | ".jpeg" | ".webp" | ".svg":
            return "Texture2D"
        case ".gdshader":
            return "Shader"
        case _:
            return "Resource"


def settle(scene: Scene, values: Mapping[str, Json]) -> tuple[Scene, dict[str, str], dict[str, str]]:
    """The scene with the resources that values need; the literals; and what the engine must read back."""
    literals: dict[str, str] = {}
    expected: dict[str, str] = {}
    for name, value in values.items():
        if "resource" in value:
            scene, literals[name] = scene.with_external(value["class"], value["resource"], value["uid"] or None)
            expected[name] = value["resource"]
        elif "sub" in value:
            scene, literals[name] = scene.with_sub_resource(value["sub"], value["properties"])
            expected[name] = value["sub"]
        else:
            literals[name] = expected[name] = value["text"]
    return scene, literals, expected


def new_node(scene: Scene, parent: str, name: str, made: Typed) -> tuple[Scene, str, dict[str, str]]:
    """(scene, the node's path, what must read back)."""
    values = dict(made.values)
    if made.script and "script" not in values:
        values["script"] = {"resource": made.script, "class": "Script", "uid": ""}
    scene, literals, expected = settle(scene, values)
    scene = scene.with_node(parent, name, f"type={quoted(made.type)}", literals)
    return scene, name if parent == "." else f"{parent}/{name}", expected


async def save(
    job: Job,
    place: Place,
    before: Scene | None,
    after: Scene,
    expected: Mapping[str, Mapping[str, str]],
    summary: str,
    details: Json,
    warnings: tuple[str, ...] = (),
) -> Outcome:
    """Write, read back, compare; what does not hold is put back as it was."""
    size = await asyncio.to_thread(_write, place, before, after)
    logs: tuple[str, ...] = ()
    if job.desk.engine.present:
        try:
            logs = await _read_back(job, place, expected)
        except Fault as fault:
            warnings = (*warnings, await _undo(job, place, before, after, fault))
        except asyncio.CancelledError:
            # Nobody will hear whether it held, and this task may not wait any more.
            _put_back(place, before)
            raise
    else:
        warnings = (*warnings, _NO_ENGINE)
    return Outcome(
        summary,
        {"scenePath": place.res, **details},
        logs=logs,
        warnings=warnings,
        files=(place.described("scene", size),),
        execution={"executor": "headless" if job.desk.engine.present else "files"},
    )


def _write(place: Place, before: Scene | None, after: Scene) -> int:
    size = files.write_text(place, after.text, overwrite=before is not None)
    again = Scene(files.read_text(place))
    if [node.path for node in again.nodes] != [node.path for node in after.nodes]:
        raise Fault(Kind.INTERNAL, f"{place.res} does not read back as it was written.")
    return size


async def _read_back(job: Job, place: Place, expected: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    nodes = [{"path": path, "values": dict(values)} for path, values in expected.items()]
    done = await job.desk.ask(job.caller, job.project, "read_back", {"scene": place.res, "nodes": nodes})
    if wrong := done.value["wrong"]:
        raise Fault(Kind.INTERNAL, "The engine does not read back what was written.", details={"properties": wrong})
    return done.logs


def _put_back(place: Place, before: Scene | None) -> None:
    if before is None:
        files.delete(place)
    else:
        files.write_text(place, before.text)


async def _undo(job: Job, place: Place, before: Scene | None, after: Scene, fault: Fault) -> str:
    """Put the file back and raise, unless the engine could not load the scene before either."""
    await asyncio.to_thread(_put_back, place, before)
    if before is None:
        raise fault
    try:
        await job.desk.ask(job.caller, job.project, "load_scene", {"scene": place.res})
    except Fault as earlier:
        if earlier.kind is not Kind.INVALID_INPUT:
            raise fault from earlier
        await asyncio.to_thread(files.write_text, place, after.text)
        return "The engine could not load this scene before the change either: import the project's assets."
    raise fault
