"""Handlers that change the nodes of a scene: add, edit, remove, rename, move, duplicate, instance, connect, group."""

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import (
    TypedValues,
    add_node,
    load_scene,
    prepare_values,
    resolve_values,
    save_scene,
)
from backends.godot.paths import ProjectPath
from backends.godot.text import node_edits
from backends.godot.text.scene import Scene, validate_name
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


def _properties(call: ToolCall) -> Json:
    return {**call.get("props", {}), **call.get("properties", {})}


async def tree(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    shown = scene.tree(call.get("maxDepth"))
    return Outcome(
        f"{location.res} has {len(scene.nodes)} nodes.",
        {
            "scenePath": location.res,
            "nodeCount": len(scene.nodes),
            "tree": shown,
            "picture": "\n".join(_draw_tree(shown)),
        },
    )


def _draw_tree(node: Json, indent: str = "", branch: str = "") -> list[str]:
    lines = [f"{branch}{node['name']} ({node['type'] or node.get('instance') or 'inherited'})"]
    children: list[Json] = node.get("children", [])
    for index, child in enumerate(children):
        last = index == len(children) - 1
        lines += _draw_tree(child, indent + ("   " if last else "│  "), indent + ("└─ " if last else "├─ "))
    return lines


async def add(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    parent = scene.find(call.text("parentNodePath", ".")).path
    name = validate_name(call.text("nodeName"))
    if call.get("ensureUniqueName", False):
        name = scene.unique_name(parent, name)
    made = await resolve_values(call, _properties(call), kind=call.text("nodeType"))
    after, path, expected = add_node(scene, parent, name, made)
    details = {"nodePath": path, "nodeType": call.text("nodeType"), "nodeName": name}
    return await save_scene(call, location, scene, after, {path: expected}, f"Added {name} ({made.type}).", details)


async def add_many(call: ToolCall) -> Outcome:
    """Add several nodes with a single write of the scene file."""
    location = call.resolve_scene_path()
    scene = after = await load_scene(call, location)
    expected: dict[str, dict[str, str]] = {}
    failures: list[Json] = []
    for index, item in enumerate(call.get("items")):
        item_call = call.with_arguments(**{"parentNodePath": None, "props": None, "properties": None, **item})
        try:
            parent = after.find(item_call.text("parentNodePath", ".")).path
            name = after.unique_name(parent, validate_name(item_call.text("nodeName")))
            made = await resolve_values(item_call, _properties(item_call), kind=item_call.text("nodeType"))
            after, path, values = add_node(after, parent, name, made)
        except Fault as fault:
            if call.get("stopOnError", True):
                raise
            failures.append({"index": index, "message": fault.message})
            continue
        expected[path] = values
        await call.report_progress(index + 1, len(call.get("items")), name)
    details = {"nodePaths": list(expected), "failures": failures}
    return await save_scene(call, location, scene, after, expected, f"Added {len(expected)} nodes.", details)


async def edit(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node = scene.find(call.text("nodePath"))
    properties = _properties(call)
    if not properties:
        raise Fault(Kind.INVALID_INPUT, "There are no properties to set.")
    made = await resolve_values(call, properties, kind=node.type or "", at=(location, node.path))
    after, literals, expected = prepare_values(scene, made.values)
    after = after.with_properties(node.path, literals)
    details = {"nodePath": node.path, "properties": sorted(properties)}
    return await save_scene(
        call, location, scene, after, {node.path: expected}, f"Set {len(properties)} properties.", details
    )


async def set_property(call: ToolCall) -> Outcome:
    return await edit(call.with_arguments(properties={call.text("property"): call.arguments.get("value")}, props=None))


async def add_resource(call: ToolCall) -> Outcome:
    """Set a property to a new resource of a class or to a resource file."""
    resource = call.get("resourcePath") or call.text("resourceType")
    if call.get("resourcePath"):
        resource = call.resolve_path("resourcePath").res
    value = {"$resource": resource, "props": call.get("props", {})}
    return await edit(call.with_arguments(properties={call.text("property"): value}, props=None))


async def remove(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node = scene.find(call.text("nodePath"))
    after, count = node_edits.remove(scene, node.path)
    warnings = tuple(node_edits.stale_path_warnings(after, node.name))
    details = {"nodePath": node.path, "removed": count}
    return await save_scene(call, location, scene, after, {}, f"Removed {node.path}.", details, warnings)


async def rename(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node, name = scene.find(call.text("nodePath")), call.text("newName")
    after = node_edits.rename(scene, node.path, name)
    path = "." if node.parent is None else name if node.parent == "." else f"{node.parent}/{name}"
    warnings = tuple(node_edits.stale_path_warnings(after, node.name))
    details = {"nodePath": path, "oldPath": node.path}
    return await save_scene(
        call, location, scene, after, {path: {}}, f"Renamed {node.name} to {name}.", details, warnings
    )


async def move(call: ToolCall) -> Outcome:
    """Move a node to another parent or to another position among its siblings."""
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node = scene.find(call.text("nodePath"))
    target = scene.find(call.text("newParentPath", node.parent or "."))
    after = node_edits.reparent(scene, node.path, target.path, call.get("index"))
    path = node.name if target.path == "." else f"{target.path}/{node.name}"
    warnings = tuple(node_edits.stale_path_warnings(after, node.name)) if path != node.path else ()
    details = {"nodePath": path, "oldPath": node.path}
    return await save_scene(
        call, location, scene, after, {path: {}}, f"Moved {node.path} to {path}.", details, warnings
    )


async def duplicate(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    after, path = node_edits.duplicate(scene, call.text("nodePath"), call.get("newName"))
    return await save_scene(
        call, location, scene, after, {path: {}}, f"Duplicated the node as {path}.", {"nodePath": path}
    )


async def instance(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    source = call.resolve_path("instancePath") if call.get("instancePath") else call.resolve_path("instanceScenePath")
    if source == location:
        raise Fault(Kind.INVALID_INPUT, "A scene cannot contain an instance of itself.")
    inner = await load_scene(call, source)
    parent = scene.find(call.text("parentNodePath", ".")).path
    wanted = call.get("instanceName") or call.get("name") or scene.unique_name(parent, inner.nodes[0].name)
    name = validate_name(str(wanted))
    after, reference = scene.with_external("PackedScene", source.res, inner.sections[0].string("uid"))
    made = (
        await resolve_values(call, _properties(call), kind=inner.nodes[0].type or "Node")
        if _properties(call)
        else TypedValues("")
    )
    after, literals, expected = prepare_values(after, made.values)
    after = after.with_node(parent, name, f"instance={reference}", literals)
    path = name if parent == "." else f"{parent}/{name}"
    details = {"nodePath": path, "instancePath": source.res}
    return await save_scene(
        call, location, scene, after, {path: expected}, f"Instanced {source.res} as {path}.", details
    )


async def connect(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    ends = (call.text("fromNodePath"), call.text("signal"), call.text("toNodePath"), call.text("method"))
    await _check_signal(call, location, scene, ends[0], ends[1])
    after = node_edits.connect(scene, *ends, call.get("flags"))
    return await save_scene(
        call, location, scene, after, {}, f"Connected {ends[1]} to {ends[3]}.", {"connection": list(ends)}
    )


async def _check_signal(call: ToolCall, location: ProjectPath, scene: Scene, path: str, signal: str) -> None:
    """Raise `Fault(NOT_FOUND)` for an unknown signal. A node with a script is not checked: scripts add signals."""
    node = scene.find(path)
    if not call.services.engine.is_available or node.type is None or node.section.property("script") is not None:
        return
    known = await call.services.run_operation(call.caller, call.project, "describe", {"class": node.type})
    if signal not in known.value["signals"]:
        raise Fault(Kind.NOT_FOUND, f"{node.type} has no signal {signal}.", details={"signals": known.value["signals"]})


async def disconnect(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    ends = (call.text("fromNodePath"), call.text("signal"), call.text("toNodePath"), call.text("method"))
    after = node_edits.disconnect(scene, *ends)
    return await save_scene(call, location, scene, after, {}, f"Disconnected {ends[1]}.", {"connection": list(ends)})


async def groups(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node = scene.find(call.text("nodePath"))
    current = scene.groups(node)
    requested: list[str] = call.get("groups") or ([call.text("groupName")] if call.get("groupName") else [])
    match call.text("action").removeprefix("groups."):
        case "add":
            wanted = [*current, *(each for each in dict.fromkeys(requested) if each not in current)]
        case "remove":
            wanted = [each for each in current if each not in requested]
        case _:
            return Outcome(f"{node.path} is in {len(current)} groups.", {"nodePath": node.path, "groups": current})
    if not requested:
        raise Fault(Kind.INVALID_INPUT, "groups is required to add or remove.")
    after = node_edits.set_groups(scene, node.path, wanted)
    details = {"nodePath": node.path, "groups": wanted}
    return await save_scene(call, location, scene, after, {}, f"{node.path} is in {len(wanted)} groups.", details)


async def attach_components(call: ToolCall) -> Outcome:
    """Add each component as a child node: a class name, or an object with node arguments."""
    items: list[Json] = []
    for each in call.get("components"):
        component: Json = {"nodeType": each} if isinstance(each, str) else each
        name = component.get("nodeName") or component.get("name") or component.get("nodeType")
        items.append({**component, "nodeName": name, "parentNodePath": call.text("nodePath")})
    return await add_many(call.with_arguments(items=items))
