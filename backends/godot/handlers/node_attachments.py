"""Handlers that attach scripts, collision layers, shaders and sprites to nodes."""

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import edit
from backends.godot.handlers.scene_editing import load_tree, resource_class, save_scene
from backends.godot.tool import ToolCall
from gateway.errors import Fault, Kind


async def attach_script(call: ToolCall) -> Outcome:
    script = call.resolve_path("scriptPath")
    if not files.exists(script) or resource_class(script) != "Script":
        raise Fault(
            Kind.NOT_FOUND, f"There is no script {script.res}.", suggested_fix="Create it with write_script first."
        )
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    after, reference = tree.with_section(node).with_external("Script", script.res)
    after = after.with_properties(node.path, {"script": reference})
    details = {"nodePath": node.path, "scriptPath": script.res}
    expected = {node.path: {"script": script.res}}
    summary = f"Attached {script.res} to {node.path}."
    return await save_scene(call, location, tree.scene, after, expected, summary, details)


async def detach_script(call: ToolCall) -> Outcome:
    location = call.resolve_scene_path()
    tree = await load_tree(call, location)
    node = tree.find(call.text("nodePath"))
    found = node.stored("script")
    if found is None or found[0] == "null":
        raise Fault(Kind.NOT_FOUND, f"{node.path} has no script.")
    if found[1].scene is tree.scene and len(node.layers) == 1:
        after = tree.scene.without_property(node.path, "script")
    else:
        after = tree.with_section(node).with_properties(node.path, {"script": "null"})
    summary = f"Detached the script of {node.path}."
    return await save_scene(call, location, tree.scene, after, {}, summary, {"nodePath": node.path})


async def set_collision(call: ToolCall) -> Outcome:
    names = {"collisionLayer": "collision_layer", "collisionMask": "collision_mask"}
    values = {property_name: call.get(name) for name, property_name in names.items() if call.get(name) is not None}
    if not values:
        raise Fault(Kind.INVALID_INPUT, "collisionLayer or collisionMask is required.")
    return await edit(call.with_arguments(properties=values, props=None))


async def apply_shader(call: ToolCall) -> Outcome:
    """Give the node a new ShaderMaterial with the shader."""
    shader = call.resolve_path("shaderPath")
    if not files.exists(shader):
        raise Fault(Kind.NOT_FOUND, f"There is no shader {shader.res}.")
    material = {"$resource": "ShaderMaterial", "props": {"shader": shader.res}}
    return await edit(call.with_arguments(properties={call.text("materialProperty", "material"): material}, props=None))


async def load_sprite(call: ToolCall) -> Outcome:
    texture = call.resolve_path("texturePath")
    if not files.exists(texture):
        raise Fault(Kind.NOT_FOUND, f"There is no texture {texture.res}.")
    return await edit(call.with_arguments(properties={"texture": texture.res}, props=None))
