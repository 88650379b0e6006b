"""Handlers that change the nodes of a scene: add, edit, remove, rename, move, duplicate, instance."""

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import (
    add_settled,
    apply_settled,
    load_scene,
    load_tree,
    resolve_tree,
    save_scene,
    settle,
    settle_new,
)
from backends.godot.text import node_edits
from backends.godot.text.scan import quote
from backends.godot.text.scene import Scene, validate_name
from backends.godot.text.tree import SceneTree, TreeNode
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


def _properties(call: ToolCall) -> Json:
    return {**call.get("props", {}), **call.get("properties", {})}


async def add(call: ToolCall) -> Outcome:
    return await add_typed(call, call.text("nodeType"), _properties(call), unique=bool(call.get("ensureUniqueName")))


async def add_typed(
    call: ToolCall, kind: str, properties: Json, *, unique: bool = False, name: str | None = None, **details: object
) -> Outcome:
    """Add one node of a class below `parentNodePath`."""
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    parent = tree.find(call.text("parentNodePath", "."))
    name = validate_name(name or call.text("nodeName"))
    name = tree.unique_name(parent, name) if unique else name
    tree.check_free(parent, name)
    settled = await settle_new(call, kind, properties)
    after, path, expected = add_settled(tree, parent, name, settled)
    shown = {"nodePath": path, "nodeType": kind, "nodeName": name, **details}
    return await save_scene(
        call, location, tree.scene, after, {path: expected}, f"Added {name} ({settled.type}).", shown
    )


async def add_many(call: ToolCall) -> Outcome:
    """Add several nodes with a single write of the scene file."""
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    before = tree.scene
    expected: dict[str, dict[str, str]] = {}
    failures: list[Json] = []
    for index, item in enumerate(call.get("items")):
        item_call = call.with_arguments(**{"parentNodePath": None, "props": None, "properties": None, **item})
        try:
            parent = tree.find(item_call.text("parentNodePath", "."))
            name = tree.unique_name(parent, validate_name(item_call.text("nodeName")))
            settled = await settle_new(item_call, item_call.text("nodeType"), _properties(item_call))
            after, path, values = add_settled(tree, parent, name, settled)
        except Fault as fault:
            if call.get("stopOnError", True):
                raise
            failures.append({"index": index, "message": fault.message})
            continue
        expected[path] = values
        tree = await resolve_tree(call, location, after)
        await call.report_progress(index + 1, len(call.get("items")), name)
    details = {"nodePaths": list(expected), "failures": failures}
    return await save_scene(call, location, before, tree.scene, expected, f"Added {len(expected)} nodes.", details)


async def edit(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    properties = _properties(call)
    if not properties:
        raise Fault(Kind.INVALID_INPUT, "There are no properties to set.")
    settled = await settle(call, tree, node, properties)
    after, expected = apply_settled(tree.with_section(node), node.path, settled, keep_defaults=len(node.layers) > 1)
    details: Json = {"nodePath": node.path, "properties": sorted(properties)}
    if not tree.is_own(node):
        details["overrides"] = node.layers[-1].file
    summary = f"Set {len(properties)} properties."
    return await save_scene(call, location, tree.scene, after, {node.path: expected}, summary, details)


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
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    tree.check_own(node, "removed")
    count = tree.size(node)
    after, _ = node_edits.remove(tree.scene, node.path)
    warnings = tuple(node_edits.stale_path_warnings(after, node.name))
    details = {"nodePath": node.path, "removed": count}
    return await save_scene(call, location, tree.scene, after, {}, f"Removed {node.path}.", details, warnings)


async def rename(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node, name = tree.find(call.text("nodePath")), validate_name(call.text("newName"))
    tree.check_own(node, "renamed")
    if node.parent is not None and name != node.name:
        tree.check_free(node.parent, name)
    after = node_edits.rename(tree.scene, node.path, name)
    path = "." if node.parent is None else _child_path(node.parent, name)
    warnings = tuple(node_edits.stale_path_warnings(after, node.name))
    details = {"nodePath": path, "oldPath": node.path}
    summary = f"Renamed {node.name} to {name}."
    return await save_scene(call, location, tree.scene, after, {path: {}}, summary, details, warnings)


async def move(call: ToolCall) -> Outcome:
    """Move a node to another parent or to another position among its siblings."""
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    if node.parent is None:
        raise Fault(Kind.INVALID_INPUT, "The root of a scene cannot be moved.")
    target = tree.find(call.text("newParentPath", node.parent.path))
    tree.check_own(node, "moved")
    if target is not node.parent:
        tree.check_free(target, node.name)
    scene = tree.with_section(target)
    after = node_edits.reparent(scene, node.path, target.path, call.get("index"))
    path = _child_path(target, node.name)
    warnings = tuple(node_edits.stale_path_warnings(after, node.name)) if path != node.path else ()
    details = {"nodePath": path, "oldPath": node.path}
    summary = f"Moved {node.path} to {path}."
    return await save_scene(call, location, tree.scene, after, {path: {}}, summary, details, warnings)


async def duplicate(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    if node.parent is None:
        raise Fault(Kind.INVALID_INPUT, "The root of a scene cannot be duplicated.")
    name = validate_name(call.get("newName") or tree.unique_name(node.parent, node.name))
    tree.check_free(node.parent, name)
    before = tree.scene
    if tree.is_own(node):
        after, path = node_edits.duplicate(before, node.path, name)
    else:
        after, path = await _copy_foreign(call, tree, node, name)
    summary = f"Duplicated the node as {path}."
    return await save_scene(call, location, before, after, {path: {}}, summary, {"nodePath": path})


async def _copy_foreign(call: ToolCall, tree: SceneTree, node: TreeNode, name: str) -> tuple[Scene, str]:
    """Copy a node of another scene into this one: as a node of its own with the values that it has here."""
    location = call.resolve_scene_path()
    assert node.parent is not None
    paths = {node.path: _child_path(node.parent, name)}
    for each in list(tree.walk(node)):
        if each.instance is not None and each is not node:
            raise Fault(
                Kind.UNSUPPORTED,
                f"{node.path} contains the instance {each.path}: duplicate it in {node.layers[-1].file} instead.",
            )
        old = each.path
        settled = await settle(call, tree, each, {}, "copy")
        new_name = name if each is node else each.name
        above = tree.find(node.parent.path if each is node else paths[_parent_path(old)])
        after, path, _ = add_settled(tree, above, new_name, settled)
        paths[old] = path
        if groups := each.groups():
            after = node_edits.set_groups(after, path, groups)
        rest = await resolve_tree(call, location, after)
        tree = rest
    return tree.scene, paths[node.path]


def _parent_path(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _child_path(parent: TreeNode, name: str) -> str:
    return name if parent.parent is None else f"{parent.path}/{name}"


async def instance(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    source = call.resolve_path("instancePath") if call.get("instancePath") else call.resolve_path("instanceScenePath")
    if source == location:
        raise Fault(Kind.INVALID_INPUT, "A scene cannot contain an instance of itself.")
    inner = await load_scene(call, source, writable=False)
    parent = tree.find(call.text("parentNodePath", "."))
    wanted = call.get("instanceName") or call.get("name") or tree.unique_name(parent, inner.nodes[0].name)
    name = validate_name(str(wanted))
    with_reference, reference = tree.scene.with_external("PackedScene", source.res, inner.sections[0].string("uid"))
    rest = await resolve_tree(call, location, with_reference)
    after = rest.with_child(rest.find(parent.path), name, f"instance={reference}", {})
    path = _child_path(parent, name)
    expected: dict[str, str] = {}
    if properties := _properties(call):
        added = await resolve_tree(call, location, after)
        node = added.find(path)
        # The file does not have the node yet, so the engine reads its values from the instanced scene.
        node.layers.pop(0)
        settled = await settle(call, added, node, properties)
        after, expected = apply_settled(after, path, settled, keep_defaults=True)
    details = {"nodePath": path, "instancePath": source.res}
    summary = f"Instanced {source.res} as {path}."
    return await save_scene(call, location, tree.scene, after, {path: expected}, summary, details)


async def inherit(call: ToolCall) -> Outcome:
    """Create a scene that inherits from another one."""
    location, source = call.resolve_scene_path(), call.resolve_path("basePath")
    if location.path.suffix != ".tscn" or source == location:
        raise Fault(Kind.INVALID_INPUT, "scenePath must end in .tscn and differ from basePath.")
    base = await load_scene(call, source, writable=False)
    scene, reference = Scene('[gd_scene format=3]\n\n[node name="Root"]\n').with_external(
        "PackedScene", source.res, base.sections[0].string("uid")
    )
    name = validate_name(call.text("rootNodeName") or location.path.stem.title().replace("_", "").replace(" ", ""))
    section = scene.nodes[0].section
    scene = scene.apply_edits([(section.start, section.header_end, f"[node name={quote(name)} instance={reference}]")])
    details = {"rootNodeName": name, "inherits": source.res}
    return await save_scene(call, location, None, scene, {".": {}}, f"Created {location.res}.", details)


async def attach_components(call: ToolCall) -> Outcome:
    """Add each component as a child node: a class name, or an object with node arguments."""
    items: list[Json] = []
    for each in call.get("components"):
        component: Json = {"nodeType": each} if isinstance(each, str) else each
        name = component.get("nodeName") or component.get("name") or component.get("nodeType")
        items.append({**component, "nodeName": name, "parentNodePath": call.text("nodePath")})
    return await add_many(call.with_arguments(items=items))
