"""Handlers for signal connections and groups of nodes."""

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load_tree, save_scene
from backends.godot.text import node_edits
from backends.godot.text.tree import TreeNode
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def connect(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    source, target = tree.find(call.text("fromNodePath")), tree.find(call.text("toNodePath"))
    signal, method = call.text("signal"), call.text("method")
    _check_signal(call, source, signal)
    wanted = {"signal": signal, "from": source.path, "to": target.path, "method": method}
    if inherited := next((each for each in tree.connections() if wanted.items() <= each.items()), None):
        origin = inherited.get("inherited", location.res)
        raise Fault(
            Kind.INVALID_INPUT, f"This connection already exists in {origin}.", suggested_fix="No change is needed."
        )
    before = tree.scene
    # Without this the engine drops the connection of a node inside an instance when the scene is saved.
    scene = tree.editable(source) if not tree.is_own(source) else before
    after = node_edits.connect(scene, source.path, signal, target.path, method, call.get("flags"))
    ends = [source.path, signal, target.path, method]
    warnings = await _missing_method(call, target, method)
    return await save_scene(
        call, location, before, after, {}, f"Connected {signal} to {method}.", {"connection": ends}, warnings
    )


def _check_signal(call: ToolCall, node: TreeNode, signal: str) -> None:
    """Raise `Fault(NOT_FOUND)` for an unknown signal. A node with a script is not checked: scripts add signals."""
    data = call.services.class_data
    if not data.knows(node.type) or node.stored("script") is not None:
        return
    known = data.signals(node.type)
    if signal not in known:
        raise Fault(Kind.NOT_FOUND, f"{node.type} has no signal {signal}.", details={"signals": known})


async def _missing_method(call: ToolCall, node: TreeNode, method: str) -> tuple[str, ...]:
    """Return a warning if the target has no such method, which the engine reports only when the signal is emitted."""
    if not call.services.engine.is_available:
        return ()
    params = {"class": node.type, "script": node.script() or "", "method": method}
    known = await call.services.run_operation(call.caller, call.project, "has_method", params)
    if known.value["found"]:
        return ()
    where = node.script() or node.type
    return (f"{where} has no method {method}: the call fails when the signal is emitted.",)


async def disconnect(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    source, target = tree.find(call.text("fromNodePath")), tree.find(call.text("toNodePath"))
    signal, method = call.text("signal"), call.text("method")
    wanted = {"signal": signal, "from": source.path, "to": target.path, "method": method}
    for each in tree.connections():
        if wanted.items() <= each.items() and "inherited" in each:
            raise Fault(Kind.UNSUPPORTED, f"The connection is made in {each['inherited']}: remove it there.")
    after = node_edits.disconnect(tree.scene, source.path, signal, target.path, method)
    ends = [source.path, signal, target.path, method]
    return await save_scene(call, location, tree.scene, after, {}, f"Disconnected {signal}.", {"connection": ends})


async def groups(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    action = call.text("action").removeprefix("groups.")
    tree = await load_tree(call, location, writable=action in ("add", "remove"))
    node = tree.find(call.text("nodePath"))
    current = node.groups()
    requested: list[str] = call.get("groups") or ([call.text("groupName")] if call.get("groupName") else [])
    if action not in ("add", "remove"):
        return Outcome(f"{node.path} is in {len(current)} groups.", {"nodePath": node.path, "groups": current})
    if not requested:
        raise Fault(Kind.INVALID_INPUT, "groups is required to add or remove.")
    own = tree.scene.groups(node.layers[0].node) if node.layers[0].scene is tree.scene else []
    foreign = [each for each in current if each not in own]
    if action == "add":
        wanted = [*own, *(each for each in dict.fromkeys(requested) if each not in current)]
    else:
        if blocked := [each for each in requested if each in foreign]:
            raise Fault(Kind.UNSUPPORTED, f"{node.path} has the group {blocked[0]} from {node.layers[-1].file}.")
        wanted = [each for each in own if each not in requested]
    scene = tree.with_section(node) if wanted != own else tree.scene
    after = node_edits.set_groups(scene, node.path, wanted) if wanted != own else scene
    details: Json = {"nodePath": node.path, "groups": [*foreign, *wanted]}
    summary = f"{node.path} is in {len(details['groups'])} groups."
    return await save_scene(call, location, tree.scene, after, {}, summary, details)
