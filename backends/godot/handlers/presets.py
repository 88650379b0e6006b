"""Handlers that add one kind of node with its resources: physics, audio, navigation, particles, UI, light."""

from collections.abc import Mapping
from typing import Any, Final

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import add_typed, edit
from backends.godot.handlers.resource_editing import change_resource
from backends.godot.handlers.scene_editing import change_node, load_tree
from backends.godot.handlers.settings import set_values
from backends.godot.text.scan import quote
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_CONTAINERS: Final[Mapping[str, str]] = {
    "vbox": "VBoxContainer", "hbox": "HBoxContainer", "grid": "GridContainer", "center": "CenterContainer",
    "margin": "MarginContainer", "panel": "PanelContainer", "scroll": "ScrollContainer", "split_h": "HSplitContainer",
    "split_v": "VSplitContainer", "tab": "TabContainer", "flow": "HFlowContainer",
}  # fmt: skip
_CONTROLS: Final[Mapping[str, str]] = {
    "button": "Button", "label": "Label", "line_edit": "LineEdit", "text_edit": "TextEdit",
    "rich_text": "RichTextLabel", "texture_rect": "TextureRect", "color_rect": "ColorRect",
    "progress_bar": "ProgressBar", "slider_h": "HSlider", "slider_v": "VSlider", "spin_box": "SpinBox",
    "check_box": "CheckBox", "check_button": "CheckButton", "option_button": "OptionButton",
    "menu_button": "MenuButton",
}  # fmt: skip
_LIGHTS: Final[Mapping[str, str]] = {
    "directional_3d": "DirectionalLight3D", "omni_3d": "OmniLight3D", "spot_3d": "SpotLight3D",
    "point_2d": "PointLight2D", "directional_2d": "DirectionalLight2D",
}  # fmt: skip
_EFFECTS: Final[Mapping[str, str]] = {
    "amplify": "Amplify", "bandlimit": "BandLimitFilter", "bandpass": "BandPassFilter", "chorus": "Chorus",
    "compressor": "Compressor", "delay": "Delay", "distortion": "Distortion", "eq6": "EQ6", "eq10": "EQ10",
    "eq21": "EQ21", "filter": "Filter", "highpass": "HighPassFilter", "highshelf": "HighShelfFilter",
    "limiter": "Limiter", "lowpass": "LowPassFilter", "lowshelf": "LowShelfFilter", "notch": "NotchFilter",
    "panner": "Panner", "phaser": "Phaser", "pitch_shift": "PitchShift", "record": "Record", "reverb": "Reverb",
    "spectrum_analyzer": "SpectrumAnalyzer", "stereo_enhance": "StereoEnhance",
}  # fmt: skip
_FLAT_SHAPES: Final = {"rectangle": "RectangleShape2D", "circle": "CircleShape2D", "capsule": "CapsuleShape2D"}
_SOLID_SHAPES: Final = {
    "box": "BoxShape3D", "sphere": "SphereShape3D", "capsule": "CapsuleShape3D", "cylinder": "CylinderShape3D",
    "convex": "ConvexPolygonShape3D",
}  # fmt: skip
BUS_LAYOUT: Final = "default_bus_layout.tres"


def color(value: Mapping[str, Any]) -> Json:
    return {"$type": "Color", "r": 0, "g": 0, "b": 0, "a": 1, **value}


def vector(value: Mapping[str, Any]) -> Json:
    return {"$type": "Vector3" if "z" in value else "Vector2", **value}


def resource(kind: str, **props: Any) -> Json:
    return {"$resource": kind, "props": props}


def choose(call: ToolCall, **names: str) -> Json:
    """Return engine property -> argument, for the arguments that the caller gave."""
    return {prop: call.get(name) for prop, name in names.items() if call.get(name) is not None}


# ---- physics ------------------------------------------------------------------------------------------------------


async def collision_shape(call: ToolCall) -> Outcome:
    kind, given = call.text("shapeType"), call.get("shapeParams", {})
    flat = not call.get("is3D", False) and kind not in ("box", "sphere", "cylinder", "convex")
    if kind == "polygon":
        x, y = given.get("sizeX", 32) / 2, given.get("sizeY", 32) / 2
        points = {"$type": "PackedVector2Array", "values": [-x, -y, x, -y, x, y, -x, y]}
        name = call.text("nodeName", "CollisionShape")
        return await add_typed(
            call, "CollisionPolygon2D" if flat else "CollisionPolygon3D", {"polygon": points}, name=name
        )
    shape = (_FLAT_SHAPES if flat else _SOLID_SHAPES).get(kind)
    if shape is None:
        raise Fault(Kind.INVALID_INPUT, f"There is no {kind} shape in {'2D' if flat else '3D'}.")
    props: Json = {name: given[name] for name in ("radius", "height") if name in given}
    if kind in ("rectangle", "box"):
        sides = [given.get(f"size{axis}", 20 if flat else 1) for axis in ("XY" if flat else "XYZ")]
        props = {"size": sides}
    if kind == "convex":
        points = [value for x in (-1, 1) for y in (-1, 1) for z in (-1, 1) for value in (x, y, z)]
        props = {"points": {"$type": "PackedVector3Array", "values": points}}
    node = "CollisionShape2D" if flat else "CollisionShape3D"
    name = call.text("nodeName", "CollisionShape")
    return await add_typed(call, node, {"shape": resource(shape, **props)}, name=name, shape=shape)


async def rigid_body(call: ToolCall) -> Outcome:
    """Set the physics of a body. A static or kinematic one is a frozen RigidBody, or has its material alone."""
    tree = await load_tree(call, call.resolve_scene_path())
    kind = tree.find(call.text("nodePath")).type
    properties: Json = {}
    data = call.services.class_data
    if data.inherits(kind, "RigidBody2D") or data.inherits(kind, "RigidBody3D"):
        properties = choose(
            call, mass="mass", gravity_scale="gravity_scale", linear_damp="linear_damp", angular_damp="angular_damp"
        )
        body = call.text("bodyType", "dynamic")
        properties |= {"freeze": body != "dynamic", "freeze_mode": 1 if body == "kinematic" else 0}
    elif not any(
        data.inherits(kind, f"{each}{dim}") for each in ("StaticBody", "CharacterBody") for dim in ("2D", "3D")
    ):
        raise Fault(Kind.INVALID_INPUT, f"{kind} is not a physics body.")
    if call.get("physics_material"):
        properties["physics_material_override"] = call.resolve_path("physics_material").res
    if not properties:
        raise Fault(Kind.INVALID_INPUT, f"{kind} has none of these properties.")
    return await edit(call.with_arguments(properties=properties, props=None))


def physics_layers(call: ToolCall) -> Outcome:
    dimension = call.text("dimension")
    names = {f"{dimension}_physics/layer_{each['layer']}": quote(each["name"]) for each in call.get("layers")}
    return set_values(call, "layer_names", names, f"Named {len(names)} physics layers.")


# ---- audio --------------------------------------------------------------------------------------------------------


async def audio_bus(call: ToolCall) -> Outcome:
    args = {name: call.get(name) for name in ("busName", "parentBus", "volume", "solo", "mute")}
    return await _change_buses(call, "files.add_bus", args, f"The bus {call.text('busName')} is set up.")


async def audio_effect(call: ToolCall) -> Outcome:
    kind = f"AudioEffect{_EFFECTS[call.text('effectType')]}"
    args: Json = {"busName": call.text("busName"), "class": kind, "effectParams": call.get("effectParams", {})}
    return await _change_buses(call, "files.add_effect", args, f"Added {kind} to {call.text('busName')}.")


async def bus_volume(call: ToolCall) -> Outcome:
    args = {"bus": call.text("bus"), "volumeDb": call.get("volumeDb")}
    return await _change_buses(call, "files.set_bus_volume", args, f"Set the volume of {call.text('bus')}.")


async def _change_buses(call: ToolCall, operation: str, args: Json, summary: str) -> Outcome:
    location = call.project.resolve(BUS_LAYOUT)
    return await change_resource(call, location, "AudioBusLayout", operation=operation, args=args, summary=summary)


async def audio_player(call: ToolCall) -> Outcome:
    kind = call.get("playerType") or ("AudioStreamPlayer3D" if call.get("is3D", False) else "AudioStreamPlayer")
    properties = choose(call, bus="bus", autoplay="autoplay", volume_db="volumeDb")
    if call.get("streamPath"):
        properties["stream"] = call.resolve_path("streamPath").res
    return await add_typed(call, kind, properties)


# ---- shaders and materials ----------------------------------------------------------------------------------------


async def shader_material(call: ToolCall) -> Outcome:
    location, shader = call.resolve_path("materialPath"), call.resolve_path("shaderPath")
    if not files.exists(shader):
        raise Fault(Kind.NOT_FOUND, f"There is no shader {shader.res}.")
    parameters: Json = call.get("parameters", {})
    properties: Json = {"shader": shader.res}
    properties |= {f"shader_parameter/{name}": value for name, value in parameters.items()}
    return await change_resource(
        call,
        location,
        "ShaderMaterial",
        args={"properties": properties},
        summary=f"Created {location.res}.",
        create_only=True,
    )


async def particle_material(call: ToolCall) -> Outcome:
    location = call.resolve_path("materialPath")
    shapes = {"point": 0, "sphere": 1, "sphere_surface": 2, "box": 3, "ring": 6}
    properties = choose(
        call, spread="spread", initial_velocity_min="initialVelocityMin", initial_velocity_max="initialVelocityMax",
        angular_velocity_min="angularVelocityMin", angular_velocity_max="angularVelocityMax", scale_min="scaleMin",
        scale_max="scaleMax",
    )  # fmt: skip
    if call.get("emissionShape"):
        properties["emission_shape"] = shapes[call.text("emissionShape")]
    properties |= {name: vector(call.get(name)) for name in ("direction", "gravity") if call.get(name)}
    if call.get("color"):
        properties["color"] = color(call.get("color"))
    return await change_resource(
        call,
        location,
        "ParticleProcessMaterial",
        args={"properties": properties},
        summary=f"Created {location.res}.",
        create_only=True,
    )


async def particles(call: ToolCall) -> Outcome:
    kind = "GPUParticles3D" if call.get("is3D", False) else "GPUParticles2D"
    properties = choose(
        call, amount="amount", lifetime="lifetime", one_shot="oneShot", preprocess="preprocess", emitting="emitting"
    )
    material: Any = resource("ParticleProcessMaterial")
    if call.get("materialPath"):
        material = call.resolve_path("materialPath").res
    properties["process_material"] = material
    if kind == "GPUParticles3D":
        properties["draw_pass_1"] = resource("QuadMesh")
    return await add_typed(call, kind, properties)


# ---- navigation ---------------------------------------------------------------------------------------------------


async def navigation_region(call: ToolCall) -> Outcome:
    solid = bool(call.get("is3D", False))
    kind, prop = ("NavigationRegion3D", "navigation_mesh") if solid else ("NavigationRegion2D", "navigation_polygon")
    value: Any = resource("NavigationMesh" if solid else "NavigationPolygon")
    if call.get("navigationMeshPath"):
        value = call.resolve_path("navigationMeshPath").res
    return await add_typed(call, kind, {prop: value})


async def bake_navigation(call: ToolCall) -> Outcome:
    """Write the parameters of a navigation mesh and bake it: in 3D from `scenePath`, in 2D from its own outlines."""
    location = call.resolve_path("meshPath")
    solid = bool(call.get("is3D", False))
    properties = choose(
        call, agent_radius="agentRadius", agent_height="agentHeight", agent_max_climb="agentMaxClimb",
        agent_max_slope="agentMaxSlope",
    )  # fmt: skip
    args: Json = {"properties": properties} if solid else choose(call, agentRadius="agentRadius")
    if solid and call.get("scenePath"):
        args["scene"] = call.resolve_scene_path().res
    return await change_resource(
        call,
        location,
        "NavigationMesh" if solid else "NavigationPolygon",
        operation="files.navigation_3d" if solid else "files.navigation_2d",
        args=args,
        summary=f"Baked {location.res}.",
    )


# ---- user interface -----------------------------------------------------------------------------------------------


async def ui_container(call: ToolCall) -> Outcome:
    properties = choose(call, columns="columns") if call.text("containerType") == "grid" else {}
    if call.get("customMinimumSize"):
        properties["custom_minimum_size"] = vector(call.get("customMinimumSize"))
    made = await add_typed(call, _CONTAINERS[call.text("containerType")], properties)
    return await _anchor(call, made, call.get("anchorsPreset"))


async def _anchor(call: ToolCall, made: Outcome, preset: str | None) -> Outcome:
    if preset is None:
        return made
    return await change_node(
        call,
        node_path=made.details["nodePath"],
        operation="nodes.anchors",
        args={"preset": preset},
        summary=made.summary,
        details=made.details,
    )


async def control(call: ToolCall) -> Outcome:
    kind = _CONTROLS[call.text("controlType")]
    properties = choose(
        call, text="text", placeholder_text="placeholderText", min_value="minValue", max_value="maxValue", value="value"
    )
    if call.get("texturePath"):
        properties["texture"] = call.resolve_path("texturePath").res
    if call.get("color"):
        properties["color" if kind == "ColorRect" else "modulate"] = color(call.get("color"))
    return await add_typed(call, kind, properties)


async def anchor_preset(call: ToolCall) -> Outcome:
    return await change_node(
        call,
        node_path=call.text("nodePath"),
        operation="nodes.anchors",
        args={"preset": call.text("anchorPreset")},
        summary=f"Anchored {call.text('nodePath')} as {call.text('anchorPreset')}.",
        of_class="Control",
    )


async def anchor_values(call: ToolCall) -> Outcome:
    sides = ("left", "top", "right", "bottom")
    args = {f"{what}_{side}": call.get(f"{what}{side.title()}") for what in ("anchor", "offset") for side in sides}
    args = {name: value for name, value in args.items() if value is not None}
    if not args:
        raise Fault(Kind.INVALID_INPUT, "There are no anchors or offsets to set.")
    return await change_node(
        call,
        node_path=call.text("nodePath"),
        operation="nodes.anchors",
        args=args,
        summary=f"Set {len(args)} anchors and offsets.",
        of_class="Control",
    )


# ---- light --------------------------------------------------------------------------------------------------------


async def light(call: ToolCall) -> Outcome:
    kind = _LIGHTS[call.text("lightType")]
    flat = kind.endswith("2D")
    properties = choose(call, shadow_enabled="shadowEnabled")
    if call.get("color"):
        properties["color" if flat else "light_color"] = color(call.get("color"))
    if call.get("energy") is not None:
        properties["energy" if flat else "light_energy"] = call.get("energy")
    if call.get("range") is not None:
        ranges = {"OmniLight3D": "omni_range", "SpotLight3D": "spot_range", "PointLight2D": "texture_scale"}
        if kind not in ranges:
            raise Fault(Kind.INVALID_INPUT, f"A {kind} has no range.")
        properties[ranges[kind]] = call.get("range")
    if call.get("spotAngle") is not None and kind == "SpotLight3D":
        properties["spot_angle"] = call.get("spotAngle")
    if call.get("texturePath"):
        properties["texture"] = call.resolve_path("texturePath").res
    elif kind == "PointLight2D":
        # Without a texture a light has no shape.
        properties["texture"] = resource(
            "GradientTexture2D", fill=1, fill_from=[0.5, 0.5], width=128, height=128, gradient=resource("Gradient")
        )
    return await add_typed(call, kind, properties)


async def environment(call: ToolCall) -> Outcome:
    location = call.resolve_path("environmentPath")
    modes = ("clear_color", "custom_color", "sky", "canvas", "keep", "camera_feed")
    tones = ("linear", "reinhard", "filmic", "aces")
    properties = choose(
        call, ambient_light_energy="ambientLightEnergy", glow_enabled="glowEnabled", glow_intensity="glowIntensity",
        fog_enabled="fogEnabled", fog_density="fogDensity", ssao_enabled="ssaoEnabled", ssr_enabled="ssrEnabled",
        sdfgi_enabled="sdfgiEnabled",
    )  # fmt: skip
    colors = {
        "background_color": "backgroundColor",
        "ambient_light_color": "ambientLightColor",
        "fog_light_color": "fogColor",
    }
    properties |= {prop: color(call.get(name)) for prop, name in colors.items() if call.get(name)}
    if call.get("backgroundMode"):
        properties["background_mode"] = modes.index(call.text("backgroundMode"))
        if call.text("backgroundMode") == "sky":
            properties["sky"] = resource("Sky", sky_material=resource("ProceduralSkyMaterial"))
    if call.get("ambientLightColor"):
        properties["ambient_light_source"] = 2
    if call.get("tonemapMode"):
        properties["tonemap_mode"] = tones.index(call.text("tonemapMode"))
    return await change_resource(
        call, location, "Environment", args={"properties": properties}, summary=f"{location.res} is set up."
    )


async def lightmapper(call: ToolCall) -> Outcome:
    """Add or change the scene's LightmapGI. Baking needs a graphics card, so it is refused."""
    if call.get("bake", False):
        raise Fault(
            Kind.UNSUPPORTED,
            "Baking lightmaps needs a graphics card, and the engine runs without one.",
            suggested_fix="Set it up here without bake, and bake in the editor.",
        )
    properties = choose(call, bounces="bounces", use_denoiser="useDenoiser", directional="directional", interior="interior", max_texture_size="maxTextureSize", environment_custom_energy="environmentEnergy")  # noqa: E501  # fmt: skip
    properties["quality"] = ("low", "medium", "high", "ultra").index(call.text("quality", "medium"))
    if call.get("environmentMode"):
        modes = ("disabled", "scene", "custom_sky", "custom_color")
        properties["environment_mode"] = modes.index(call.text("environmentMode"))
    if call.get("environmentColor"):
        properties["environment_custom_color"] = color(call.get("environmentColor"))
    tree = await load_tree(call, call.resolve_scene_path())
    found = next((node for node in tree.walk() if node.type == "LightmapGI"), None)
    if found is not None:
        return await edit(call.with_arguments(nodePath=found.path, properties=properties, props=None))
    if not call.get("createNode", True):
        raise Fault(Kind.NOT_FOUND, "The scene has no LightmapGI.")
    return await add_typed(call, "LightmapGI", properties, name="LightmapGI")


async def set_shader_parameter(call: ToolCall) -> Outcome:
    args: Json = {"param": call.text("param"), "value": call.arguments.get("value")}
    args |= {name: call.get(name) for name in ("materialProperty", "surfaceIndex") if call.get(name) is not None}
    return await change_node(
        call,
        node_path=call.text("nodePath"),
        operation="nodes.shader_parameter",
        args=args,
        summary=f"Set the shader parameter {call.text('param')}.",
    )
