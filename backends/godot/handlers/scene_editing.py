"""Shared steps of scene edits: resolve the tree, have the engine settle values, edit by span, read back and verify."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.paths import ProjectPath
from backends.godot.text.literal import to_literal
from backends.godot.text.merge import merge_properties
from backends.godot.text.scan import quote
from backends.godot.text.scene import Scene
from backends.godot.text.tree import SceneTree, TreeNode, instance_paths
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_CLASS = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_ENGINE_WARNING = "No engine is available: only the syntax of the file was checked."
_MAX_SCENES: Final = 500
"""Instanced scene files that one call reads."""
_TEXT_SUFFIXES: Final = (".tscn", ".tres")


@dataclass(frozen=True, slots=True)
class Settled:
    """Property values of one node, settled by the engine if one is available."""

    type: str
    script: str = ""
    """Script of a class that the project defines."""
    saved: Scene | None = None
    """File in which the engine saved the values."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Property -> property of the saved file."""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """Property -> digest that the engine must read back."""
    defaults: frozenset[str] = frozenset()
    """Properties that have the default of their class."""
    literals: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Property -> literal or resource, without an engine."""
    result: Json = field(default_factory=dict[str, Any])


async def load_scene(call: ToolCall, location: ProjectPath, *, writable: bool = True) -> Scene:
    """Read a scene file. Raises `Fault` if it is missing or empty, or not in a form that can be edited.

    A scene in binary form is read through the engine when it is not `writable`.
    """
    if location.path.suffix not in _TEXT_SUFFIXES:
        if writable:
            raise Fault(
                Kind.UNSUPPORTED,
                f"{location.res} is in binary form: it can be read, not edited.",
                suggested_fix="Save it as text with save_scene and newPath ending in .tscn, and edit that.",
            )
        return await _load_binary(call, location)
    try:
        text = await asyncio.to_thread(files.read_text, location, "The scene")
    except Fault as fault:
        if fault.kind is Kind.NOT_FOUND:
            fault.suggested_fix = "Create it with create_scene first, or call list_scenes to see which scenes exist."
        raise
    scene = Scene(text)
    if not scene.nodes:
        raise Fault(Kind.INVALID_INPUT, f"{location.res} has no nodes.")
    if writable:
        check_format(scene, location)
    return scene


def check_format(scene: Scene, location: ProjectPath) -> None:
    """Raise `Fault(UNSUPPORTED)` for a file of Godot 3, which the engine would misread after an edit."""
    if scene.sections[0].string("format") == "2":
        raise Fault(
            Kind.UNSUPPORTED,
            f"{location.res} is a file of Godot 3 (format=2): it can be read, not edited.",
            suggested_fix="Convert the project with convert_3to4, or open and save it in a Godot 4 editor.",
        )


async def _load_binary(call: ToolCall, location: ProjectPath) -> Scene:
    """Read a binary or imported scene as the text that the engine writes for it."""
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no scene {location.res}.")
    answer = await call.services.run_operation(call.caller, call.project, "scene_text", {"scene": location.res})
    return Scene(str(answer.value["text"]))


async def load_tree(call: ToolCall, location: ProjectPath, *, writable: bool = True) -> SceneTree:
    """Read a scene with all scenes that it instances. One that cannot be read is marked as unresolved."""
    scene = await load_scene(call, location, writable=writable)
    return await resolve_tree(call, location, scene)


async def resolve_tree(call: ToolCall, location: ProjectPath, scene: Scene) -> SceneTree:
    library: dict[str, Scene] = {}
    pending = instance_paths(scene)
    while pending and len(library) < _MAX_SCENES:
        path = pending.pop()
        if path in library or path == location.res:
            continue
        try:
            found = await load_scene(call, call.project.resolve(path), writable=False)
        except Fault:
            continue
        library[path] = found
        pending += instance_paths(found)
    return await asyncio.to_thread(SceneTree, location.res, scene, library)


# ---- values -------------------------------------------------------------------------------------------------------


async def settle_new(call: ToolCall, kind: str, properties: Json) -> Settled:
    """Settle the values of a new node of class `kind`."""
    if not call.services.engine.is_available:
        if not _CLASS.fullmatch(kind):
            raise Fault(Kind.INVALID_INPUT, f"{kind!r} is not a valid class name.")
        return _without_engine(call, kind, properties)
    return await author(call, {"class": kind, "operation": "set", "args": {"properties": properties}})


async def settle(
    call: ToolCall, tree: SceneTree, node: TreeNode, properties: Json, operation: str = "set", args: Json | None = None
) -> Settled:
    """Settle new values of a node, or those that another operation of the engine gives it."""
    if not call.services.engine.is_available:
        if operation != "set":
            raise Fault(Kind.UNSUPPORTED, "This needs a Godot engine, and none is available.")
        return _without_engine(call, node.type, properties)
    params: Json = {
        "class": node.type or "Node",
        "script": node.script() or "",
        "scene": tree.file,
        "chain": [[layer.file, layer.node.path] for layer in node.layers],
        "operation": operation,
        "args": {"properties": properties} if operation == "set" else args or {},
    }
    return await author(call, params)


async def author(call: ToolCall, params: Json) -> Settled:
    """Run an authoring operation of the engine on one node."""
    params = {**params, "args": prepare_arguments(call, params["args"])}
    value = (await call.services.run_operation(call.caller, call.project, "author", params)).value
    return Settled(
        value["class"],
        value["script"],
        Scene(value["text"]),
        value["names"] | dict.fromkeys(value["removed"], ""),
        value["digests"],
        frozenset(value["defaults"]),
        result=value["result"],
    )


def prepare_arguments(call: ToolCall, args: Json) -> Json:
    """Check the paths in the arguments and convert typed JSON to the literals that the engine reads."""
    for name, value in args.items():
        _check_resource_paths(call, name, value)
    return {name: _for_engine(call, value) for name, value in args.items()}


def _check_resource_paths(call: ToolCall, name: str, value: Any) -> None:
    """Raise `Fault(DENIED)` if a value refers to a resource outside the project."""
    if isinstance(value, dict):
        for key, item in cast("Json", value).items():
            _check_resource_paths(call, key if name == "properties" else name, item)
            if key == "$resource" and isinstance(item, str) and ("/" in item or "\\" in item):
                call.project.resolve(item, name)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _check_resource_paths(call, name, item)
    elif isinstance(value, str) and value.startswith(("res://", "user://", "uid://", "file://")):
        call.project.resolve(value, name)


def _for_engine(call: ToolCall, value: Any) -> Any:
    if isinstance(value, list):
        return [_for_engine(call, item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("Json", value)
    if "$type" in found or "$literal" in found:
        return {"$literal": to_literal(found)}
    if path := _resource_path(found):
        found = {**found, "$resource": call.project.resolve(path).res}
    return {key: _for_engine(call, item) for key, item in found.items()}


def _resource_path(value: Any) -> str | None:
    """Return the path of a `{"$resource": path}`, or None for a class name and other values."""
    path: Any = cast("Json", value).get("$resource") if isinstance(value, dict) else None
    return path if isinstance(path, str) and "/" in path else None


def _without_engine(call: ToolCall, kind: str, properties: Json) -> Settled:
    for name, value in properties.items():
        _check_resource_paths(call, name, value)
    return Settled(kind, literals={name: _value_without_engine(call, value) for name, value in properties.items()})


def _value_without_engine(call: ToolCall, value: Any) -> Json:
    path = _resource_path(value)
    if path is None and isinstance(value, str) and value.startswith("res://"):
        path = value
    if path is None:
        return {"text": to_literal(value)}
    location = call.project.resolve(path)
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no resource {location.res}.")
    return {"resource": location.res, "class": resource_class(location)}


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


# ---- edits --------------------------------------------------------------------------------------------------------


def apply_settled(scene: Scene, path: str, settled: Settled, *, keep_defaults: bool) -> tuple[Scene, dict[str, str]]:
    """Write settled values into the node's section. Returns the scene and the digests that the engine must read back.

    A value that is the default of the class is not stored, unless the node overrides one of another scene.
    """
    if settled.saved is None:
        literals: dict[str, str] = {}
        for name, value in settled.literals.items():
            if "resource" in value:
                scene, literals[name] = scene.with_external(value["class"], value["resource"])
            else:
                literals[name] = value["text"]
        return scene.with_properties(path, literals), {}
    dropped = frozenset[str]() if keep_defaults else settled.defaults
    names = {name: "" if name in dropped else key for name, key in settled.names.items()}
    scene = merge_properties(scene, scene.find(path).section, settled.saved, names)
    return scene, {name: settled.digests[name] for name, key in names.items() if key}


def add_settled(tree: SceneTree, parent: TreeNode, name: str, settled: Settled) -> tuple[Scene, str, dict[str, str]]:
    """Add a node with settled values. Returns the scene, the node's path and the digests."""
    scene = tree.with_child(parent, name, f"type={quote(settled.type)}", {})
    path = name if parent.parent is None else f"{parent.path}/{name}"
    scene, expected = apply_settled(scene, path, settled, keep_defaults=False)
    if settled.script and "script" not in settled.names:
        scene, reference = scene.with_external("Script", settled.script)
        scene = scene.with_properties(path, {"script": reference})
        expected["script"] = settled.script
    return scene, path, expected


async def change_node(
    call: ToolCall,
    *,
    node_path: str,
    operation: str,
    args: Json,
    summary: str,
    details: Json | None = None,
    of_class: str = "",
) -> Outcome:
    """Change one node by an operation of the engine, and store what it changed."""
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(node_path)
    if of_class and not await is_class(call, node.type, of_class):
        raise Fault(Kind.INVALID_INPUT, f"{node.path} is a {node.type}, not a {of_class}.")
    settled = await settle(call, tree, node, args, operation, args)
    scene = tree.with_section(node)
    after, expected = apply_settled(scene, node.path, settled, keep_defaults=len(node.layers) > 1)
    shown = {"nodePath": node.path, **(details or {}), **settled.result}
    return await save_scene(call, location, tree.scene, after, {node.path: expected}, summary, shown)


async def is_class(call: ToolCall, name: str, wanted: str) -> bool:
    """Return whether a class is or inherits another one."""
    data = call.services.class_data
    return data.inherits(name, wanted) if data.knows(name) else True


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
