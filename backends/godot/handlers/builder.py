"""Handlers that build common parts of a game from several nodes, each with one write of the scene."""

from collections.abc import Mapping
from typing import Any, Final

from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import add_many, add_typed
from backends.godot.handlers.presets import color, resource
from backends.godot.handlers.resource_editing import change_resource
from backends.godot.handlers.scene_editing import change_node
from backends.godot.handlers.scripts import write as write_script
from backends.godot.tool import ToolCall
from gateway.contract import Json

_FPS_SCRIPT: Final = """extends CharacterBody3D

@export var speed := 5.0
@export var sensitivity := 0.003


func _unhandled_input(event: InputEvent) -> void:
\tif event is InputEventMouseMotion:
\t\trotate_y(-event.relative.x * sensitivity)
\t\t$Camera.rotation.x = clampf($Camera.rotation.x - event.relative.y * sensitivity, -1.4, 1.4)


func _physics_process(delta: float) -> void:
\tvar wanted := Input.get_vector("ui_left", "ui_right", "ui_up", "ui_down")
\tvar direction := transform.basis * Vector3(wanted.x, 0, wanted.y)
\tvelocity = Vector3(direction.x * speed, velocity.y - 9.8 * delta, direction.z * speed)
\tmove_and_slide()
"""
_SPIN_SCRIPT: Final = """extends Area3D

@export var turns_per_second := 0.5


func _process(delta: float) -> void:
\trotate_y(TAU * turns_per_second * delta)
"""
_MESHES: Final[Mapping[str, str]] = {
    "box": "BoxMesh", "sphere": "SphereMesh", "cylinder": "CylinderMesh", "capsule": "CapsuleMesh",
    "plane": "PlaneMesh", "torus": "TorusMesh", "prism": "PrismMesh",
}  # fmt: skip
_SUNS: Final[Mapping[str, tuple[float, str]]] = {
    "basic_3d": (1.0, "white"), "sunny": (1.5, "lemonchiffon"), "overcast": (0.5, "lightsteelblue"),
    "sunset": (0.9, "orangered"), "night": (0.15, "midnightblue"),
}  # fmt: skip


async def _add(call: ToolCall, *items: Json) -> Outcome:
    """Add nodes; `below` names an item of the same call as the parent."""
    parent = call.text("parentNodePath", ".")
    prefix = "" if parent in (".", "root", "") else f"{parent}/"
    placed: list[Json] = []
    for item in items:
        below = item.pop("below", None)
        placed.append({**item, "parentNodePath": f"{prefix}{below}" if below else parent})
    return await add_many(call.with_arguments(items=placed, stopOnError=True))


def _item(kind: str, name: str, below: str | None = None, **properties: Any) -> Json:
    return {"nodeType": kind, "nodeName": name, "below": below, "properties": properties}


async def lighting(call: ToolCall) -> Outcome:
    preset = call.text("lightingPreset", "basic_3d")
    if preset == "basic_2d":
        return await _add(
            call, _item("CanvasModulate", "Darkness", color="dimgray"), _item("DirectionalLight2D", "Sun")
        )
    if preset == "indoor":
        return await _add(call, _item("OmniLight3D", "Lamp", position=[0, 3, 0], omni_range=12, shadow_enabled=True))
    energy, tint = _SUNS[preset]
    environment = resource(
        "Environment", background_mode=2, sky=resource("Sky", sky_material=resource("ProceduralSkyMaterial"))
    )
    return await _add(
        call,
        _item("WorldEnvironment", "World", environment=environment),
        _item(
            "DirectionalLight3D",
            "Sun",
            light_energy=energy,
            light_color=tint,
            shadow_enabled=True,
            rotation=[-0.8, 0.6, 0],
        ),
    )


async def primitive(call: ToolCall) -> Outcome:
    mesh = _MESHES[call.text("primitive", "box")]
    return await add_typed(call, "MeshInstance3D", {"mesh": resource(mesh)}, mesh=mesh)


async def ui_template(call: ToolCall) -> Outcome:
    """Add a user interface: a panel with the controls of its kind."""
    kind = call.text("uiTemplate", "basic")
    texts: dict[str, list[tuple[str, str, str]]] = {
        "basic": [("Label", "Title", "Title")],
        "hud": [("Label", "Score", "Score: 0"), ("ProgressBar", "Health", "")],
        "menu": [("Button", "Continue", "Continue"), ("Button", "Quit", "Quit")],
        "main_menu": [("Label", "Title", "My game"), ("Button", "Start", "Start"), ("Button", "Quit", "Quit")],
        "pause_menu": [("Label", "Title", "Paused"), ("Button", "Resume", "Resume"), ("Button", "Quit", "Quit")],
        "dialogue_box": [("Label", "Speaker", "Name"), ("RichTextLabel", "Words", "…"), ("Button", "Next", "Next")],
        "inventory_grid": [("Button", f"Slot{number}", "") for number in range(1, 13)],
    }
    box: tuple[str, Json] = ("GridContainer", {"columns": 4}) if kind == "inventory_grid" else ("VBoxContainer", {})
    items = [_item("CanvasLayer", "Ui"), _item(box[0], "Box", "Ui", **box[1])]
    for control, name, text in texts[kind]:
        values: Json = {"text": text} if text else {}
        minimum = {"custom_minimum_size": [64, 64]} if kind == "inventory_grid" else {}
        items.append(_item(control, name, "Ui/Box", **values, **minimum))
    made = await _add(call, *items)
    anchored = await change_node(
        call,
        node_path=made.details["nodePaths"][1],
        operation="nodes.anchors",
        args={"preset": "top_left" if kind in ("basic", "hud") else "center"},
        summary=f"Added the {kind} interface.",
    )
    return Outcome(anchored.summary, {**made.details, "uiTemplate": kind}, files=anchored.files)


async def fps_controller(call: ToolCall) -> Outcome:
    path = call.text("scriptPath", "fps_controller.gd")
    await write_script(call.with_arguments(scriptPath=path, content=_FPS_SCRIPT, overwrite=True))
    script = call.project.resolve(path).res
    name = call.text("nodeName", "FpsController")
    return await _add(
        call,
        _item("CharacterBody3D", name, script=script),
        _item("CollisionShape3D", "Shape", name, shape=resource("CapsuleShape3D"), position=[0, 1, 0]),
        _item("Camera3D", "Camera", name, position=[0, 1.6, 0]),
    )


async def health_bar(call: ToolCall) -> Outcome:
    name = call.text("nodeName", "HealthBar")
    return await _add(
        call,
        _item("CanvasLayer", name),
        _item("ProgressBar", "Bar", name, value=100, custom_minimum_size=[200, 24], position=[16, 16]),
    )


async def spinning_pickup(call: ToolCall) -> Outcome:
    path = call.text("scriptPath", "spinning_pickup.gd")
    await write_script(call.with_arguments(scriptPath=path, content=_SPIN_SCRIPT, overwrite=True))
    name = call.text("nodeName", "Pickup")
    return await _add(
        call,
        _item("Area3D", name, script=call.project.resolve(path).res),
        _item("CollisionShape3D", "Shape", name, shape=resource("SphereShape3D")),
        _item("MeshInstance3D", "Mesh", name, mesh=resource("TorusMesh")),
    )


async def particle_effect(call: ToolCall) -> Outcome:
    gravity = {"fire": [0, -60, 0], "smoke": [0, -20, 0], "rain": [0, 400, 0], "sparks": [0, 200, 0]}
    tints = {"fire": "orangered", "smoke": "gray", "rain": "lightblue", "sparks": "gold"}
    kind = call.text("effect", "sparks")
    material = resource(
        "ParticleProcessMaterial", gravity=gravity[kind], color=tints[kind], spread=30, initial_velocity_max=80
    )
    return await add_typed(
        call, "GPUParticles2D", {"process_material": material, "amount": 48}, name=call.text("nodeName", kind.title())
    )


async def terrain_mesh(call: ToolCall) -> Outcome:
    made = await add_typed(call, "MeshInstance3D", {}, name=call.text("nodeName", "Terrain"), unique=True)
    args = {name: call.get(name) for name in ("size", "heightScale", "seed", "frequency", "octaves")}
    return await change_node(
        call,
        node_path=made.details["nodePath"],
        operation="nodes.terrain",
        args={name: value for name, value in args.items() if value is not None},
        summary=f"Added {made.details['nodeName']} with a mesh of {call.get('size', 32)} by {call.get('size', 32)}.",
    )


async def terrain_material(call: ToolCall) -> Outcome:
    location = call.resolve_path("materialPath", "terrain_material.tres")
    noise = resource("NoiseTexture2D", seamless=True, noise=resource("FastNoiseLite"))
    properties: Json = {"albedo_color": color({"r": 0.35, "g": 0.5, "b": 0.25}), "roughness_texture": noise}
    summary = f"Created {location.res}."
    return await change_resource(
        call, location, "StandardMaterial3D", args={"properties": properties}, summary=summary, create_only=True
    )


async def trigger_area(call: ToolCall) -> Outcome:
    name, solid = call.text("nodeName"), bool(call.get("is3D", False))
    kind, shape = ("3D", resource("BoxShape3D")) if solid else ("2D", resource("RectangleShape2D", size=[64, 64]))
    return await _add(call, _item(f"Area{kind}", name), _item(f"CollisionShape{kind}", "Shape", name, shape=shape))


async def rigid_body(call: ToolCall) -> Outcome:
    name, solid = call.text("nodeName"), bool(call.get("is3D", False))
    mass = float(call.get("mass", 1))
    if solid:
        return await _add(
            call,
            _item("RigidBody3D", name, mass=mass),
            _item("CollisionShape3D", "Shape", name, shape=resource("BoxShape3D")),
            _item("MeshInstance3D", "Mesh", name, mesh=resource("BoxMesh")),
        )
    shape = resource("RectangleShape2D", size=[32, 32])
    return await _add(
        call, _item("RigidBody2D", name, mass=mass), _item("CollisionShape2D", "Shape", name, shape=shape)
    )


async def create_ui(call: ToolCall) -> Outcome:
    """Add a root control with elements: each a class, a name and properties."""
    root = call.text("uiRootName", "Ui")
    items = [_item(call.text("uiRootType", "Control"), root)]
    if call.get("uiControlType"):
        items.append(_item(call.text("uiControlType"), call.text("uiControlName", call.text("uiControlType")), root))
    for number, element in enumerate(call.get("elements", []), 1):
        kind = str(element.get("type") or element.get("nodeType") or "Label")
        name = str(element.get("name") or element.get("nodeName") or f"{kind}{number}")
        items.append(_item(kind, name, root, **(element.get("properties") or element.get("props") or {})))
    return await _add(call, *items)
