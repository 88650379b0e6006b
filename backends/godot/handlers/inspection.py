"""Handlers that inspect scenes and classes without changing or running anything."""

from typing import Any, Final, cast

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load_tree
from backends.godot.text.literal import from_literal
from backends.godot.text.tree import SceneTree, TreeNode
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_MAX_NODES: Final = 500
"""Nodes that one answer shows unless the caller asks for another number."""


async def tree(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    scene = await load_tree(call, location, writable=False)
    start = scene.find(call.text("nodePath", "."))
    limit = int(call.get("maxNodes") or call.get("limit") or _MAX_NODES)
    offset = int(call.get("offset", 0))
    shown, count, left_out = scene.view(start, max_depth=call.get("maxDepth"), max_nodes=limit, offset=offset)
    total = count + left_out + sum(scene.size(each) for each in scene.children(start)[:offset])
    details: Json = {
        "scenePath": location.res,
        "nodeCount": total,
        "tree": shown,
        "picture": "\n".join(_draw_tree(shown)),
    }
    summary = f"{location.res} has {total} nodes."
    if left_out:
        details["leftOut"] = left_out
        summary += f" {left_out} are not shown: pass nodePath, offset or a larger maxNodes or maxDepth for them."
    return Outcome(summary, details, warnings=tuple(scene.warnings))


def _draw_tree(node: Json, indent: str = "", branch: str = "") -> list[str]:
    origin = node.get("instance") or node.get("inherits")
    lines = [f"{branch}{node['name']} ({origin or node['type'] or 'unknown'})"]
    children: list[Json] = node.get("children", [])
    hidden = node.get("childCount", len(children)) - len(children)
    for index, child in enumerate(children):
        last = index == len(children) - 1 and not hidden
        lines += _draw_tree(child, indent + ("   " if last else "│  "), indent + ("└─ " if last else "├─ "))
    if hidden:
        lines.append(f"{indent}└─ … {hidden} more")
    return lines


async def inspect(call: ToolCall) -> Outcome:
    """Describe a class, or return the properties that the scene files store for a node."""
    if call.get("className"):
        return await describe(call)
    scene = await load_tree(call, call.resolve_scene_path(), writable=False)
    node = scene.find(call.text("nodePath", "."))
    if call.get("property") is not None:
        return await _property(call, scene, node, call.text("property"))
    stored = {name: _stored(scene, node, name) for name in node.stored_names()}
    entry = scene.entry(node)
    details: Json = {
        "nodePath": node.path,
        "class": node.type,
        "properties": {name: found["value"] for name, found in stored.items()},
        "groups": node.groups(),
        **{key: entry[key] for key in ("instance", "inherits", "definedIn", "script") if key in entry},
    }
    if origins := {name: found["definedIn"] for name, found in stored.items() if "definedIn" in found}:
        details["definedIn"] = entry.get("definedIn", "")
        details["inherited"] = origins
    return Outcome(f"{node.path} stores {len(stored)} properties.", details)


def _stored(scene: SceneTree, node: TreeNode, name: str) -> Json:
    found = node.stored(name)
    assert found is not None
    literal, layer = found
    shown: Json = {"value": scene.value(literal, layer), "literal": literal}
    return shown if layer.scene is scene.scene else {**shown, "definedIn": layer.file}


async def _property(call: ToolCall, scene: SceneTree, node: TreeNode, wanted: str) -> Outcome:
    """Return one property: as stored, else the default of the script or of the class. `shape:radius` looks inside."""
    name, _, inner = wanted.partition(":") if not wanted.startswith("metadata/") else (wanted, "", "")
    details: Json = {"nodePath": node.path, "property": wanted}
    if node.stored(name) is not None:
        details |= _stored(scene, node, name)
        for step in inner.split(":") if inner else ():
            details = _inner_property(call, details, step)
        return Outcome(f"{wanted} of {node.path}.", {"default": False, **details})
    literal = await _default(call, node, name)
    if literal is None or inner:
        raise Fault(
            Kind.NOT_FOUND,
            f"{node.path} ({node.type}) has no property {wanted}.",
            details={"nodePath": node.path, "property": wanted},
        )
    return Outcome(
        f"{wanted} of {node.path} has its default value.",
        {**details, "value": from_literal(literal), "literal": literal, "default": True},
    )


def _inner_property(call: ToolCall, outer: Json, step: str) -> Json:
    value = cast("Json", outer["value"]) if isinstance(outer["value"], dict) else {}
    props: Json | None = value.get("props")
    if props is None:
        raise Fault(Kind.NOT_FOUND, f"{outer['property']}: there is no resource inside the scene before {step!r}.")
    if step in props:
        return {**outer, "value": props[step], "default": False}
    known = call.services.class_data.property(str(value["$resource"]), step)
    if known is None:
        raise Fault(Kind.NOT_FOUND, f"{value['$resource']} has no property {step}.")
    return {**outer, "value": from_literal(known[1] or "null"), "default": True}


async def _default(call: ToolCall, node: TreeNode, name: str) -> str | None:
    if call.services.engine.is_available and (script := node.script()):
        params = {"script": script, "property": name}
        found = await call.services.run_operation(call.caller, call.project, "script_default", params)
        if found.value["found"]:
            return str(found.value["literal"])
    known = call.services.class_data.property(node.type, name)
    return None if known is None else known[1] or "null"


async def describe(call: ToolCall) -> Outcome:
    """Describe a class from the class data; classes that it lacks come from the engine."""
    data, name = call.services.class_data, call.text("className")
    if call.services.engine.is_available or not data.knows(name):
        params = {"class": name, "own": False}
        project = call.optional_project or call.services.scratch_project(call.caller)
        result = await call.services.run_operation(call.caller, project, "describe", params)
        return Outcome(f"{result.value['class']} is a {result.value['parent'] or 'class of its own'}.", result.value)
    lineage = data.lineage(name)
    properties = [
        {"name": key, "type": kind, "default": from_literal(default or "null")}
        for key, (kind, default) in data.properties(name).items()
    ]
    details: Json = {
        "class": name,
        "parent": lineage[1] if len(lineage) > 1 else "",
        "instantiable": data.can_instantiate(name),
        "properties": properties,
        "signals": data.signals(name),
    }
    return Outcome(f"{name} is a {details['parent'] or 'class of its own'}.", details)


async def query_nodes(call: ToolCall) -> Outcome:
    """Find nodes by name, part of a name, class or group."""
    scene = await load_tree(call, call.resolve_scene_path(), writable=False)
    limit = int(call.get("limit", 100))
    found = [node for node in scene.walk() if _matches(call, node)]
    shown: list[Any] = [{"path": node.path, "name": node.name, "type": node.type} for node in found[:limit]]
    return Outcome(f"{len(found)} nodes match.", {"nodes": shown, "total": len(found)})


def _matches(call: ToolCall, node: TreeNode) -> bool:
    data = call.services.class_data
    wanted = call.text("className")
    matches: dict[str, bool] = {
        "name": node.name == call.get("name"),
        "nameContains": call.text("nameContains").lower() in node.name.lower(),
        "className": node.type == wanted or data.inherits(node.type, wanted),
        "group": call.get("group") in node.groups(),
    }
    params = all(is_match for name, is_match in matches.items() if call.get(name) is not None)
    return params and (call.get("includeRoot", True) or node.parent is not None)


async def list_connections(call: ToolCall) -> Outcome:
    scene = await load_tree(call, call.resolve_scene_path(), writable=False)
    source = scene.find(call.text("sourceNodePath", ".")).path
    found = [
        each for each in scene.connections() if each["from"] == source and call.get("signal") in (None, each["signal"])
    ]
    return Outcome(f"{source} has {len(found)} connections.", {"connections": found})
