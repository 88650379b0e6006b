"""Handlers that inspect scenes and classes without changing or running anything."""

from typing import Any

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load_scene
from backends.godot.text.scene import Node, Scene
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def inspect(call: ToolCall) -> Outcome:
    """Describe a class, or return the properties that the scene file stores for a node."""
    if call.get("className"):
        return await describe(call)
    location = call.resolve_scene_path()
    scene = await load_scene(call, location)
    node = scene.find(call.text("nodePath", "."))
    stored: dict[str, Any] = {each.name: each.value for each in node.section.properties}
    details: Json = {"nodePath": node.path, "class": node.type, "properties": stored, "groups": scene.groups(node)}
    wanted = call.get("property")
    if wanted is not None:
        if wanted not in stored:
            raise Fault(Kind.NOT_FOUND, f"The scene stores no {wanted} for {node.path}: it has its default value.")
        details = {"nodePath": node.path, "property": wanted, "value": stored[wanted]}
    return Outcome(f"{node.path} stores {len(stored)} properties.", details)


async def describe(call: ToolCall) -> Outcome:
    params = {"class": call.text("className"), "own": False}
    result = await call.services.run_operation(call.caller, call.project, "describe", params)
    return Outcome(f"{result.value['class']} is a {result.value['parent'] or 'class of its own'}.", result.value)


async def query_nodes(call: ToolCall) -> Outcome:
    """Find nodes by name, part of a name, class or group."""
    scene = await load_scene(call, call.resolve_scene_path())
    limit = int(call.get("limit", 100))
    found = [node for node in scene.nodes if _matches(call, scene, node)]
    shown = [{"path": node.path, "name": node.name, "type": node.type or ""} for node in found[:limit]]
    return Outcome(f"{len(found)} nodes match.", {"nodes": shown, "total": len(found)})


def _matches(call: ToolCall, scene: Scene, node: Node) -> bool:
    matches: dict[str, bool] = {
        "name": node.name == call.get("name"),
        "nameContains": call.text("nameContains").lower() in node.name.lower(),
        "className": node.type == call.get("className"),
        "group": call.get("group") in scene.groups(node),
    }
    params = all(is_match for name, is_match in matches.items() if call.get(name) is not None)
    return params and (call.get("includeRoot", True) or node.path != ".")


async def list_connections(call: ToolCall) -> Outcome:
    scene = await load_scene(call, call.resolve_scene_path())
    source = scene.find(call.text("sourceNodePath", ".")).path
    found = [
        each for each in scene.connections() if each["from"] == source and call.get("signal") in (None, each["signal"])
    ]
    return Outcome(f"{source} has {len(found)} connections.", {"connections": found})
