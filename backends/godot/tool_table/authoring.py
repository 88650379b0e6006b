"""Simple tools that build parts of a game: animations, tile maps, physics, audio, shaders, navigation, UI, light."""

# One entry per line for readability; see `parameter_notation` for the signatures.
# fmt: off
# ruff: noqa: E501

from typing import Final

from backends.godot.handlers import animation, nodes, presets, scripts, tiles
from backends.godot.tool import SET, WRITE, Tool

_TRACKS = "(value|position_2d|position_3d|rotation_2d|rotation_3d|scale_2d|scale_3d|method|bezier|audio|animation)"
_EFFECTS = "(amplify|bandlimit|bandpass|chorus|compressor|delay|distortion|eq6|eq10|eq21|filter|highpass|highshelf|limiter|lowpass|lowshelf|notch|panner|phaser|pitch_shift|record|reverb|spectrum_analyzer|stereo_enhance)"
_CONTROLS = "(button|label|line_edit|text_edit|rich_text|texture_rect|color_rect|progress_bar|slider_h|slider_v|spin_box|check_box|check_button|option_button|menu_button)"
_ANCHORS = "(full_rect|center|top_left|top_right|bottom_left|bottom_right)"

AUTHORING_TOOLS: Final = (
    Tool("create_inherited_scene", "Create inherited scene", "Make a scene that inherits from another one.", WRITE, "P S basePath* rootNodeName", nodes.inherit),
    # ---- animation ----
    Tool("create_animation_player", "Create animation player", "Add an AnimationPlayer to a scene.", WRITE, "P S nodeName=AnimationPlayer parentNodePath", animation.create_player),
    Tool("add_animation", "Add animation", "Add an empty animation to an AnimationPlayer.", WRITE, "P S playerNodePath* animationName* length:num>=0.001=1 loop:bool=false", animation.add_animation),
    Tool("add_animation_track", "Add animation track", "Add a track to an animation. nodePath is relative to the player's parent.", WRITE, f"P S playerNodePath* animationName* trackType*:{_TRACKS} nodePath* property", animation.add_track),
    Tool("set_keyframe", "Set keyframe", "Set a key of an animation's track.", SET, "P S playerNodePath* animationName* trackIndex*:int>=0 time*:num>=0 value*:any transition:num easing:num", animation.set_key),
    Tool("create_animation_tree", "Create animation tree", "Add an AnimationTree to a scene.", WRITE, "P S nodeName* parentNodePath animPlayerPath rootMotionTrack processCallback:(idle|physics|manual)", animation.create_tree),
    Tool("setup_state_machine", "Set up state machine", "Give an AnimationTree a state machine.", SET, "P S animTreePath* states*:states transitions:transitions startState", animation.setup_state_machine),
    Tool("blend_animations", "Blend animations", "Give an AnimationTree a blend space.", SET, "P S animTreePath* blendSpaceName* type*:(1d|2d) points*:blendPoints minSpace:num maxSpace:num minSpaceY:num maxSpaceY:num blendMode:(interpolated|discrete|carry) sync:bool", animation.blend),
    # ---- tile maps ----
    Tool("create_tileset", "Create tile set", "Make a tile set of a texture, or of plain colors; solid tiles collide.", WRITE, "P tilesetPath* tileSize*:xy texturePath colors:[str] solid:bool=false", tiles.create_set),
    Tool("create_tilemap_layer", "Create tile map layer", "Add a TileMapLayer with a tile set.", WRITE, "P S nodeName* parentNodePath tilesetPath* zIndex:int=0", tiles.create_layer),
    Tool("set_tile", "Set tile", "Set one cell of a TileMapLayer; sourceId -1 clears it.", SET, "P S tilemapNodePath* layer:int>=0=0 position*:xy sourceId*:int>=-1 atlasCoords*:xy alternativeTile:int", tiles.set_tile),
    Tool("paint_tiles", "Paint tiles", "Set many cells of a TileMapLayer.", SET, "P S tilemapNodePath* layer:int>=0=0 tiles*:tiles", tiles.paint),
    Tool("import_ldtk_level", "Import LDtk level", "Make a scene of a level of an LDtk file.", WRITE, "P ldtkPath* outputPath levelIdentifier createCollision:bool=false entityMapping:entityMapping tileSize:xy", tiles.import_ldtk, timeout=300.0),
    # ---- physics ----
    Tool("create_collision_shape", "Create collision shape", "Add a collision shape to a body or an area.", WRITE, "P S nodeName=CollisionShape parentNodePath* shapeType*:(rectangle|circle|capsule|polygon|box|sphere|cylinder|convex) is3D:bool=false shapeParams:shapeParams", presets.collision_shape),
    Tool("setup_rigidbody", "Set up rigid body", "Set mass, gravity, damping and material of a body.", SET, "P S nodePath* bodyType:(dynamic|static|kinematic)=dynamic mass:num>=0.001=1 gravity_scale:num=1 linear_damp:num>=0 angular_damp:num>=0 physics_material", presets.rigid_body),
    Tool("configure_physics_layers", "Name physics layers", "Name the physics layers of the project.", SET, "P dimension*:(2d|3d) layers*:layerNames", presets.physics_layers),
    # ---- audio ----
    Tool("create_audio_bus", "Create audio bus", "Add a bus to the project's bus layout, or change it.", SET, "P busName* parentBus=Master volume:num=0 solo:bool=false mute:bool=false", presets.audio_bus),
    Tool("setup_audio_player", "Set up audio player", "Add an audio player to a scene.", WRITE, "P S nodeName* parentNodePath is3D:bool=false streamPath bus=Master autoplay:bool=false volumeDb:num=0", presets.audio_player),
    Tool("add_audio_effect", "Add audio effect", "Add an effect to an audio bus.", WRITE, f"P busName* effectType*:{_EFFECTS} effectParams:object", presets.audio_effect),
    # ---- shaders, particles ----
    Tool("create_shader", "Create shader", "Write a shader of its parts; the engine's errors come with their lines.", WRITE, "P shaderPath* shaderType*:(spatial|canvas_item|particles|sky|fog) renderMode:[str] vertexCode fragmentCode lightCode", scripts.create_shader),
    Tool("create_shader_material", "Create shader material", "Make a material file that uses a shader.", WRITE, "P materialPath* shaderPath* parameters:object", presets.shader_material),
    Tool("create_gpu_particles", "Create particles", "Add GPU particles to a scene.", WRITE, "P S nodeName* parentNodePath is3D:bool=false amount:int>=1 lifetime:num>=0.001 oneShot:bool preprocess:num>=0 emitting:bool materialPath", presets.particles),
    Tool("create_particle_material", "Create particle material", "Make a material file for particles.", WRITE, "P materialPath* emissionShape:(point|sphere|sphere_surface|box|ring) direction:xyz spread:num gravity:xyz initialVelocityMin:num initialVelocityMax:num angularVelocityMin:num angularVelocityMax:num scaleMin:num scaleMax:num color:rgba", presets.particle_material),
    # ---- navigation ----
    Tool("create_navigation_region", "Create navigation region", "Add a navigation region to a scene.", WRITE, "P S nodeName* parentNodePath is3D:bool=false navigationMeshPath", presets.navigation_region),
    Tool("bake_navigation_mesh", "Bake navigation mesh", "Set the parameters of a navigation mesh file and bake it, in 3D from the geometry of scenePath.", SET, "P meshPath* is3D:bool=false agentRadius:num>=0 agentHeight:num>=0 agentMaxClimb:num>=0 agentMaxSlope:num>=0 scenePath", presets.bake_navigation),
    # ---- user interface ----
    Tool("create_ui_container", "Create UI container", "Add a container to a scene.", WRITE, f"P S nodeName* parentNodePath containerType*:(vbox|hbox|grid|center|margin|panel|scroll|split_h|split_v|tab|flow) columns:int>=1 customMinimumSize:xy anchorsPreset:{_ANCHORS}", presets.ui_container),
    Tool("create_control", "Create control", "Add a control to a scene.", WRITE, f"P S nodeName* parentNodePath controlType*:{_CONTROLS} text placeholderText texturePath color:rgba minValue:num maxValue:num value:num", presets.control),
    # ---- light ----
    Tool("create_light", "Create light", "Add a light to a scene.", WRITE, "P S nodeName* parentNodePath lightType*:(directional_3d|omni_3d|spot_3d|point_2d|directional_2d) color:rgba energy:num range:num spotAngle:num shadowEnabled:bool texturePath", presets.light),
    Tool("setup_environment", "Set up environment", "Make or change an environment file: background, ambient light, tone mapping, glow, fog.", SET, "P environmentPath* backgroundMode:(clear_color|custom_color|sky|canvas|keep|camera_feed) backgroundColor:rgba ambientLightColor:rgba ambientLightEnergy:num tonemapMode:(linear|reinhard|filmic|aces) glowEnabled:bool glowIntensity:num fogEnabled:bool fogDensity:num fogColor:rgba ssaoEnabled:bool ssrEnabled:bool sdfgiEnabled:bool", presets.environment),
    Tool("setup_lightmapper", "Set up lightmapper", "Add or change the scene's LightmapGI; baking needs the editor.", SET, "P S quality:(low|medium|high|ultra)=medium bounces:int>=0<=16=3 useDenoiser:bool=true createNode:bool=true bake:bool=false bakeTimeout:int>=10000<=3600000=300000 directional:bool=false interior:bool=false maxTextureSize:int>=128<=16384 environmentMode:(disabled|scene|custom_sky|custom_color) environmentColor:rgba environmentEnergy:num>=0", presets.lightmapper),
)
