"""Handlers for animations: players, tracks, keys, state machines and blend spaces."""

from typing import Final

from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import add_typed
from backends.godot.handlers.scene_editing import change_node, load_tree, settle
from backends.godot.text.scan import unquote
from backends.godot.text.tree import SceneTree, TreeNode
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault

VARIANT_TYPES: Final = (
    "Nil", "bool", "int", "float", "String", "Vector2", "Vector2i", "Rect2", "Rect2i", "Vector3", "Vector3i",
    "Transform2D", "Vector4", "Vector4i", "Plane", "Quaternion", "AABB", "Basis", "Transform3D", "Projection", "Color",
    "StringName", "NodePath", "RID", "Object",
)  # fmt: skip
"""Names of the engine's types in the order of their numbers."""


async def create_player(call: ToolCall) -> Outcome:
    return await add_typed(call, "AnimationPlayer", {}, name=call.text("nodeName", "AnimationPlayer"))


async def add_animation(call: ToolCall) -> Outcome:
    args = {name: call.get(name) for name in ("animationName", "length", "loop")}
    summary = f"Added the animation {call.text('animationName')}."
    return await _change_player(call, "animation.add_animation", args, summary)


async def add_track(call: ToolCall) -> Outcome:
    names = ("animationName", "trackType", "nodePath", "property")
    args = {name: call.get(name) for name in names if call.get(name) is not None}
    return await _change_player(call, "animation.add_track", args, f"Added a {call.text('trackType')} track.")


async def set_key(call: ToolCall) -> Outcome:
    names = ("animationName", "trackIndex", "time", "transition", "easing")
    args: Json = {name: call.get(name) for name in names if call.get(name) is not None}
    args["value"] = call.arguments.get("value")
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    player = tree.find(call.text("playerNodePath"))
    args["valueType"] = _track_type(call, tree, player, call.text("animationName"), int(call.get("trackIndex", 0)))
    return await _change_player(call, "animation.set_key", args, f"Set a key at {call.get('time')} s.")


async def create_simple(call: ToolCall) -> Outcome:
    tree = await load_tree(call, call.resolve_scene_path())
    player = tree.find(call.text("playerPath"))
    names = ("animation", "nodePath", "property", "duration", "replaceExisting", "startValue", "endValue")
    args: Json = {name: call.arguments[name] for name in names if name in call.arguments}
    args["valueType"] = _property_type(call, tree, player, call.text("nodePath"), call.text("property"))
    if "startValue" not in args:
        args["startValue"] = args["endValue"]
    return await change_node(
        call,
        node_path=player.path,
        operation="animation.create_simple",
        args=args,
        summary=f"Created the animation {call.text('animation')}.",
        of_class="AnimationPlayer",
    )


async def list_animations(call: ToolCall) -> Outcome:
    tree = await load_tree(call, call.resolve_scene_path(), writable=False)
    player = tree.find(call.text("playerPath"))
    found = await settle(call, tree, player, {}, "animation.list", {})
    return Outcome(f"{player.path} has {len(found.result['animations'])} animations.", found.result)


async def _change_player(call: ToolCall, operation: str, args: Json, summary: str) -> Outcome:
    return await change_node(
        call,
        node_path=call.text("playerNodePath"),
        operation=operation,
        args=args,
        summary=summary,
        of_class="AnimationPlayer",
    )


def _track_type(call: ToolCall, tree: SceneTree, player: TreeNode, animation: str, track: int) -> int:
    """Return the type of the property that a track animates; 0 when it cannot be known."""
    library, _, name = animation.rpartition("/")
    stored = player.stored(f"libraries/{library}")
    if stored is None:
        return 0
    value = tree.value(*stored)
    try:
        entries = value["props"]["_data"]["entries"]
        found = next(item for key, item in entries if key["name"] == name)
        path = found["props"][f"tracks/{track}/path"]["path"]
    except (KeyError, TypeError, StopIteration):
        return 0
    node, _, prop = path.partition(":")
    return _property_type(call, tree, player, node, prop)


def _property_type(call: ToolCall, tree: SceneTree, player: TreeNode, node: str, prop: str) -> int:
    # Tracks are relative to the player's root node, by default its parent.
    stored = player.stored("root_node")
    base = player.parent or player
    if stored is not None and unquote(stored[0].removeprefix("NodePath(").rstrip(")")) == ".":
        base = player
    path = node if base.parent is None else f"{base.path}/{node}"
    while path.startswith("../") or "/../" in path:
        head, _, rest = path.partition("/../")
        path = f"{head.rpartition('/')[0]}/{rest}".strip("/") if rest else path.removeprefix("../")
    try:
        kind = tree.find(path.replace("/./", "/")).type
    except Fault:
        return 0
    known = call.services.class_data.property(kind, prop)
    return VARIANT_TYPES.index(known[0]) if known and known[0] in VARIANT_TYPES else 0


async def create_tree(call: ToolCall) -> Outcome:
    made = await add_typed(call, "AnimationTree", {})
    names = ("animPlayerPath", "rootMotionTrack", "processCallback")
    args = {name: call.get(name) for name in names if call.get(name) is not None}
    tree = await load_tree(call, call.resolve_scene_path())
    if player := args.get("animPlayerPath"):
        args["animPlayerPath"] = _relative(tree.find(made.details["nodePath"]), tree.find(player))
    return await change_node(
        call,
        node_path=made.details["nodePath"],
        operation="animation.setup_tree",
        args=args,
        summary=f"Added {call.text('nodeName')} (AnimationTree).",
        details={"nodeType": "AnimationTree"},
    )


def _relative(source: TreeNode, target: TreeNode) -> str:
    """Return the path from one node to another, as the engine stores it."""
    ups = 0
    above: TreeNode | None = source
    while above is not None:
        prefix = "" if above.parent is None else above.path + "/"
        if target is above:
            return "/".join([".."] * ups) or "."
        if target.path.startswith(prefix):
            return "../" * ups + target.path[len(prefix) :]
        above, ups = above.parent, ups + 1
    return target.path


async def setup_state_machine(call: ToolCall) -> Outcome:
    names = ("states", "transitions", "startState")
    args = {name: call.get(name) for name in names if call.get(name) is not None}
    summary = f"Set up {len(call.get('states'))} states."
    return await _change_tree(call, "animation.state_machine", args, summary)


async def blend(call: ToolCall) -> Outcome:
    names = (
        "blendSpaceName", "type", "points", "minSpace", "maxSpace", "minSpaceY", "maxSpaceY", "blendMode", "sync",
    )  # fmt: skip
    args = {name: call.get(name) for name in names if call.get(name) is not None}
    summary = f"Set up the blend space {call.text('blendSpaceName')}."
    return await _change_tree(call, "animation.blend_space", args, summary)


async def _change_tree(call: ToolCall, operation: str, args: Json, summary: str) -> Outcome:
    return await change_node(
        call,
        node_path=call.text("animTreePath"),
        operation=operation,
        args=args,
        summary=summary,
        of_class="AnimationTree",
    )
