"""What a node carries: its script, collision layers, shader, sprite."""

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import edit
from backends.godot.handlers.scene_editing import load, resource_class, save
from backends.godot.tool import Job
from gateway.errors import Fault, Kind


async def attach_script(job: Job) -> Outcome:
    place, script = job.scene(), job.place("scriptPath")
    if not files.exists(script) or resource_class(script) != "Script":
        raise Fault(
            Kind.NOT_FOUND, f"There is no script {script.res}.", suggested_fix="Make it with write_script first."
        )
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    after, reference = scene.with_external("Script", script.res)
    after = after.with_properties(node.path, {"script": reference})
    details = {"nodePath": node.path, "scriptPath": script.res}
    expected = {node.path: {"script": script.res}}
    return await save(job, place, scene, after, expected, f"Attached {script.res} to {node.path}.", details)


async def detach_script(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    if node.section.property("script") is None:
        raise Fault(Kind.NOT_FOUND, f"{node.path} has no script.")
    after = scene.without_property(node.path, "script")
    return await save(job, place, scene, after, {}, f"Detached the script of {node.path}.", {"nodePath": node.path})


async def collision(job: Job) -> Outcome:
    names = {"collisionLayer": "collision_layer", "collisionMask": "collision_mask"}
    values = {own: job.get(name) for name, own in names.items() if job.get(name) is not None}
    if not values:
        raise Fault(Kind.INVALID_INPUT, "collisionLayer or collisionMask is needed.")
    return await edit(job.with_(properties=values, props=None))


async def apply_shader(job: Job) -> Outcome:
    """A new ShaderMaterial of its own for the node."""
    shader = job.place("shaderPath")
    if not files.exists(shader):
        raise Fault(Kind.NOT_FOUND, f"There is no shader {shader.res}.")
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    after, reference = scene.with_external("Shader", shader.res)
    after, material = after.with_sub_resource("ShaderMaterial", {"shader": reference})
    name = job.text("materialProperty", "material")
    after = after.with_properties(node.path, {name: material})
    details = {"nodePath": node.path, "shaderPath": shader.res, "materialProperty": name}
    expected = {node.path: {name: "ShaderMaterial"}}
    return await save(job, place, scene, after, expected, f"Applied {shader.res} to {node.path}.", details)


async def load_sprite(job: Job) -> Outcome:
    texture = job.place("texturePath")
    if not files.exists(texture):
        raise Fault(Kind.NOT_FOUND, f"There is no texture {texture.res}.")
    return await edit(job.with_(properties={"texture": texture.res}, props=None))
