"""Shared steps of scene edits: resolve values with the engine, edit the file by span, read back and verify."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.paths import ProjectPath
from backends.godot.text.literal import to_literal
from backends.godot.text.scan import quote
from backends.godot.text.scene import Scene
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_CLASS = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_ENGINE_WARNING = "No engine is available: only the syntax of the file was checked."


@dataclass(frozen=True, slots=True)
class TypedValues:
    """Property values of a class, converted by the engine if one is available."""

    type: str
    script: str = ""
    values: Mapping[str, Json] = field(default_factory=dict[str, Json])


async def load_scene(call: ToolCall, location: ProjectPath) -> Scene:
    """Read a scene file. Raises `Fault` if it is missing, not in text form or empty."""
    if location.path.suffix not in (".tscn", ".tres"):
        raise Fault(Kind.UNSUPPORTED, "Only scenes in text form (.tscn) can be edited.")
    try:
        text = await asyncio.to_thread(files.read_text, location, "The scene")
    except Fault as fault:
        if fault.kind is Kind.NOT_FOUND:
            fault.suggested_fix = "Create it with create_scene first, or call list_scenes to see which scenes exist."
        raise
    scene = Scene(text)
    if not scene.nodes:
        raise Fault(Kind.INVALID_INPUT, f"{location.res} has no nodes.")
    return scene


async def resolve_values(
    call: ToolCall, properties: Json, *, kind: str = "", at: tuple[ProjectPath, str] | None = None
) -> TypedValues:
    """Convert JSON values for a new object of class `kind`, or for an existing node `at` (scene, node path)."""
    for name, value in properties.items():
        _check_resource_paths(call, name, value)
    if not call.services.engine.is_available:
        if at is None and not _CLASS.fullmatch(kind):
            raise Fault(Kind.INVALID_INPUT, f"{kind!r} is not a valid class name.")
        return TypedValues(
            kind, values={name: _value_without_engine(call, value) for name, value in properties.items()}
        )
    params: Json = {"properties": {name: _with_res_path(call, value) for name, value in properties.items()}}
    params |= {"scene": at[0].res, "node": at[1]} if at else {"class": kind}
    value = (await call.services.run_operation(call.caller, call.project, "values", params)).value
    return TypedValues(value["class"], value["script"], value["values"])


def _check_resource_paths(call: ToolCall, name: str, value: Any) -> None:
    """Raise `Fault(DENIED)` if a value refers to a resource outside the project."""
    if isinstance(value, dict):
        for key, item in cast("Json", value).items():
            _check_resource_paths(call, name, item)
            if key == "$resource" and isinstance(item, str) and ("/" in item or "\\" in item):
                call.project.resolve(item, name)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _check_resource_paths(call, name, item)
    elif isinstance(value, str) and value.startswith(("res://", "user://", "uid://", "file://")):
        call.project.resolve(value, name)


def _resource_path(value: Any) -> str | None:
    """Return the path of a `{"$resource": path}`, or None for a class name and other values."""
    path: Any = cast("Json", value).get("$resource") if isinstance(value, dict) else None
    return path if isinstance(path, str) and "/" in path else None


def _with_res_path(call: ToolCall, value: Any) -> Any:
    """Replace the path of a `{"$resource": path}` with its `res://` form."""
    path = _resource_path(value)
    return {**cast("Json", value), "$resource": call.project.resolve(path).res} if path else value


def _value_without_engine(call: ToolCall, value: Any) -> Json:
    path = _resource_path(value)
    if path is None and isinstance(value, str) and value.startswith("res://"):
        path = value
    if path is None:
        return {"text": to_literal(value)}
    location = call.project.resolve(path)
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no resource {location.res}.")
    return {"resource": location.res, "class": resource_class(location), "uid": ""}


def resource_class(location: ProjectPath) -> str:
    """Return the resource class of a file by its suffix."""
    match location.path.suffix.lower():
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


def prepare_values(scene: Scene, values: Mapping[str, Json]) -> tuple[Scene, dict[str, str], dict[str, str]]:
    """Add the resources that the values refer to.

    Returns the scene, the literal of each property, and the values that the engine must read back.
    """
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


def add_node(scene: Scene, parent: str, name: str, values: TypedValues) -> tuple[Scene, str, dict[str, str]]:
    """Add a node. Returns the scene, the node's path and the values that the engine must read back."""
    properties = dict(values.values)
    if values.script and "script" not in properties:
        properties["script"] = {"resource": values.script, "class": "Script", "uid": ""}
    scene, literals, expected = prepare_values(scene, properties)
    scene = scene.with_node(parent, name, f"type={quote(values.type)}", literals)
    return scene, name if parent == "." else f"{parent}/{name}", expected


async def save_scene(
    call: ToolCall,
    location: ProjectPath,
    before: Scene | None,
    after: Scene,
    expected: Mapping[str, Mapping[str, str]],
    summary: str,
    details: Json,
    warnings: tuple[str, ...] = (),
) -> Outcome:
    """Write the scene and verify it. The previous file is restored if the engine reads other values."""
    size = await asyncio.to_thread(_write, location, before, after)
    logs: tuple[str, ...] = ()
    if call.services.engine.is_available:
        try:
            logs = await _read_back(call, location, expected)
        except Fault as fault:
            warnings = (*warnings, await _revert(call, location, before, after, fault))
        except asyncio.CancelledError:
            # The caller has left and a cancelled task cannot await: restore the file synchronously.
            _restore(location, before)
            raise
    else:
        warnings = (*warnings, _NO_ENGINE_WARNING)
    return Outcome(
        summary,
        {"scenePath": location.res, **details},
        logs=logs,
        warnings=warnings,
        files=(location.describe("scene", size),),
        execution={"executor": "headless" if call.services.engine.is_available else "files"},
    )


def _write(location: ProjectPath, before: Scene | None, after: Scene) -> int:
    size = files.write_text(location, after.text, overwrite=before is not None)
    reread = Scene(files.read_text(location))
    if [node.path for node in reread.nodes] != [node.path for node in after.nodes]:
        raise Fault(Kind.INTERNAL, f"{location.res} does not match what was written.")
    return size


async def _read_back(
    call: ToolCall, location: ProjectPath, expected: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    nodes = [{"path": path, "values": dict(values)} for path, values in expected.items()]
    result = await call.services.run_operation(
        call.caller, call.project, "read_back", {"scene": location.res, "nodes": nodes}
    )
    if wrong := result.value["wrong"]:
        raise Fault(Kind.INTERNAL, "The engine reads other values than were written.", details={"properties": wrong})
    return result.logs


def _restore(location: ProjectPath, before: Scene | None) -> None:
    if before is None:
        files.delete(location)
    else:
        files.write_text(location, before.text)


async def _revert(call: ToolCall, location: ProjectPath, before: Scene | None, after: Scene, fault: Fault) -> str:
    """Restore the file and raise `fault`.

    If the engine could not load the previous version either, keep the change and return a warning.
    """
    await asyncio.to_thread(_restore, location, before)
    if before is None:
        raise fault
    try:
        await call.services.run_operation(call.caller, call.project, "load_scene", {"scene": location.res})
    except Fault as earlier:
        if earlier.kind is not Kind.INVALID_INPUT:
            raise fault from earlier
        await asyncio.to_thread(files.write_text, location, after.text)
        return "The engine could not load this scene before the change either: import the project's assets."
    raise fault
