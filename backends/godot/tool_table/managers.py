"""Manager tools: each takes an `action` parameter that selects the operation."""

# One entry per line for readability; see `parameter_notation` for the signatures.
# fmt: off
# ruff: noqa: E501

from typing import Final

from backends.godot.handlers import (
    animation,
    assets,
    builder,
    inspection,
    node_attachments,
    nodes,
    playing,
    presets,
    projects,
    running,
    scenes,
    scripts,
    settings,
    signals,
    tiles,
    workspace,
)
from backends.godot.tool import READ, WRITE, Action, Tool

_TIMEOUT = "timeoutMs:int>=1<=60000"
_ONE_OF = "className nodePath instanceId:int"
_EXACTLY = "className nodePath instanceId"

_WORKSPACE: Final = (
    Action("launch", "P", running.launch_editor),
    Action("connect", "P", running.connect),
    Action("status", "p", running.status),
    Action("run", "p scene", running.start, editor_method="run_project"),
    Action("stop", "p", running.stop, editor_method="stop_project"),
    Action("smoke_test", "P scene waitMs:int>=100<=60000=2000 failOnIssues:bool=true", running.smoke_test),
    Action("new_scene", "P S rootNodeType=Node2D", scenes.create, editor_method="create_scene"),
    Action("open_scene", "p S", editor_method="open_scene"),
    Action("save_scene", "P S newPath", scenes.resave, editor_method="save_scene"),
    Action("save_all", "p", editor_method="save_all"),
    Action("restart", "P", running.restart),
    Action("get_state", "p", running.status),
    Action("guidelines.search", "P query* guidelinesFilePath maxMatches:int>=1=10", workspace.search_guidelines),
    Action("guidelines.get_section", "P section* guidelinesFilePath maxChars:int>=1=12000", workspace.guideline_section),
    Action("docs.search", "p query* maxResults:int>=1=10", workspace.search_docs),
    Action("docs.get_class", "p className*", workspace.class_docs),
    Action("doctor_report", "P reportRelativePath options:object", workspace.doctor),
)

_SCENE: Final = (
    Action("create", "nodeType* nodeName* parentNodePath props:object properties:object ensureUniqueName:bool=true", nodes.add, editor_method="add_node"),
    Action("update", "nodePath* props:object properties:object", nodes.edit, editor_method="edit_node"),
    Action("batch_create", "items*:items stopOnError:bool=true", nodes.add_many, editor_method="add_nodes"),
    Action("create_tilemap", "nodeName* parentNodePath tileSetPath tileSetTexturePath tileSize:xy cells:cells layer:int>=0=0", tiles.create_tilemap),
    Action("create_ui", "parentNodePath uiRootType=Control uiRootName=Ui uiControlType uiControlName elements:items", builder.create_ui),
    Action("attach_script", "nodePath* scriptPath*", node_attachments.attach_script, editor_method="attach_script"),
    Action("attach_components", "nodePath* components*:components", nodes.attach_components),
    Action("rename", "nodePath* newName*", nodes.rename, editor_method="rename_node", gated_operation="rename_node"),
    Action("move", "nodePath* index*:int>=0", nodes.move, editor_method="move_node", gated_operation="move_node"),
    Action("duplicate", "nodePath* newName", nodes.duplicate, editor_method="duplicate_node"),
    Action("reparent", "nodePath* newParentPath* index:int>=0", nodes.move, editor_method="reparent_node"),
    Action("instance", "instanceScenePath* parentNodePath name props:object", nodes.instance, editor_method="instance_scene"),
    Action("remove", "nodePath*", nodes.remove, editor_method="remove_node", gated_operation="remove_node"),
    Action("undo", "", editor_method="undo"),
    Action("redo", "", editor_method="redo"),
)

_INSPECTOR: Final = (
    Action("query", "name nameContains className group includeRoot:bool=true limit:int>=1<=1000", inspection.query_nodes, editor_method="query"),
    Action("scene_tree.get", "limit:int>=1<=5000=500 nodePath offset:int>=0=0", inspection.tree, editor_method="get_scene_tree"),
    Action("inspect", _ONE_OF, inspection.inspect, editor_method="inspect", exactly_one_of=_EXACTLY),
    Action("property_list", _ONE_OF, inspection.inspect, editor_method="inspect", exactly_one_of=_EXACTLY),
    Action("method_list", _ONE_OF, inspection.inspect, editor_method="inspect", exactly_one_of=_EXACTLY),
    Action("signals.list", _ONE_OF, inspection.inspect, editor_method="inspect", exactly_one_of=_EXACTLY),
    Action("select", "nodePath* additive:bool=false clear:bool=false", editor_method="select"),
    Action("get_selection", "", editor_method="get_selection"),
    Action("focus_node", "nodePath*", editor_method="select"),
    Action("connect_signal", "fromNodePath* signal* toNodePath* method*", signals.connect, editor_method="connect_signal"),
    Action("disconnect_signal", "fromNodePath* signal* toNodePath* method*", signals.disconnect, editor_method="disconnect_signal"),
    Action("signals.connections.list", "sourceNodePath* signal", inspection.list_connections),
    Action("resource.add", "nodePath* property* resourceType* resourcePath props:object", nodes.add_resource),
    Action("set_property", "nodePath* property* value*:any", nodes.set_property, editor_method="set_property"),
    Action("get_property", "nodePath* property*", inspection.inspect, editor_method="get_property"),
    Action("groups.get", "nodePath*", signals.groups),
    Action("groups.add", "nodePath* groupName*", signals.groups),
    Action("groups.remove", "nodePath* groupName*", signals.groups),
    Action("animation.list", "playerPath*", animation.list_animations),
    Action("animation.create_simple", "playerPath* animation* nodePath* property* endValue*:any startValue:any duration:num>=0.001=1 replaceExisting:bool=false", animation.create_simple),
    Action("audio.set_bus_volume", "bus* volumeDb*:num", presets.bus_volume),
    Action("shader.set_param", "nodePath* param* value*:any materialProperty surfaceIndex:int>=0", presets.set_shader_parameter),
    Action("set_collision_layer", "nodePath* collisionLayer:int>=0 collisionMask:int>=0", node_attachments.set_collision),
)

_ASSET: Final = (
    Action("load_texture", "P S nodePath* texturePath*", node_attachments.load_sprite),
    Action("get_uid", "P filePath*", scenes.get_uid),
    Action("uid_convert", "P filePath*", scenes.get_uid),
    Action("file_exists", "P filePath*", assets.file_exists),
    Action("scan", "p godotPath", assets.import_all, editor_method="scan"),
    Action("reimport", "p files:paths paths:paths", assets.reimport, editor_method="reimport", exactly_one_of="files paths"),
    Action("auto_import_check", "p files:paths paths:paths forceReimport:bool=false", assets.import_check, exactly_one_of="files paths"),
    Action("create_folder", "P dirPath* createParents:bool=true", assets.create_folder),
    Action("list_resources", "P dirPath=res:// recursive:bool=true maxResults:int>=1=200", assets.list_resources),
    Action("search_files", "P pattern* directory recursive:bool=true maxResults:int>=1=200", assets.search_files),
    Action("scene.read", "P S maxChars:int>=1=12000", scenes.read),
    Action("scene.delete", "P S", scenes.delete, gated_operation="scene.delete"),
    Action("scene.duplicate", "P sourceScenePath* destScenePath*", scenes.duplicate),
    Action("scene.rename", "P S newScenePath*", scenes.rename, gated_operation="scene.rename"),
    Action("scene.replace_resource", "P S oldResource* newResource*", scenes.replace_resource),
)

_CODE: Final = (
    Action("script.create", "P scriptPath* content template=basic_node className overwrite:bool=false", scripts.create),
    Action("script.read", "P scriptPath* maxChars:int>=1=12000", scripts.read),
    Action("script.attach", "P s nodePath* scriptPath*", node_attachments.attach_script, editor_method="attach_script"),
    Action("gdscript.eval_restricted", "P expression code vars:object variables:object", scripts.evaluate, exactly_one_of="expression code"),
    Action("shader.create", "P shaderPath* content* overwrite:bool=false", scripts.write_shader),
    Action("shader.apply", "P s nodePath* shaderPath* materialProperty=material", node_attachments.apply_shader),
    Action("file.read", "P filePath*", scripts.read_text),
    Action("file.write", "P filePath* content* overwrite:bool=false", scripts.write_text),
    Action("file.edit", "P filePath* find* replace* regex:bool=false maxReplacements:int>=1=50 dryRun:bool=false", scripts.edit_text),
    Action("file.write_binary", "P filePath* base64* overwrite:bool=false", scripts.write_binary),
)

_PRESETS = "top_left|top_right|bottom_left|bottom_right|center_left|center_top|center_right|center_bottom|center|left_wide|top_wide|right_wide|bottom_wide|vcenter_wide|hcenter_wide|full_rect"
_SIDES = "anchorLeft:num anchorTop:num anchorRight:num anchorBottom:num offsetLeft:num offsetTop:num offsetRight:num offsetBottom:num"

_CONFIG: Final = (
    Action("project_info.get", "P", projects.info),
    Action("save_game_data", "P key* value*:any", settings.save_data),
    Action("load_game_data", "P key* defaultValue:any", settings.load_data),
    Action("input_map.setup", "P actions*:mapActions", settings.input_map),
    Action("project_setting.set", "P key* value*:any", settings.set_setting, gated_operation="project_setting.set"),
    Action("project_setting.get", "P key*", settings.get_settings),
    Action("errors.get_recent", "p maxMatches:int>=1=50", running.poll_output),
)

_POLL = "p cursor:int>=0 maxBytes:int>=1=65536 maxMatches:int>=1=50 onlyErrors:bool pattern"
_LOG: Final = (
    Action("poll", f"{_POLL} openScriptOnError:bool=false", running.poll_output),
    Action("tail", _POLL, running.poll_output),
    Action("clear_output", "p", running.clear_output),
)

_BUILDER: Final = (
    Action("lighting_preset", "parentNodePath lightingPreset:(basic_3d|basic_2d|sunny|overcast|sunset|night|indoor)=basic_3d", builder.lighting),
    Action("create_primitive", "parentNodePath nodeName* primitive:(box|sphere|cylinder|capsule|plane|torus|prism)=box", builder.primitive),
    Action("create_ui_template", "parentNodePath uiTemplate:(basic|hud|menu|main_menu|pause_menu|dialogue_box|inventory_grid)=basic", builder.ui_template),
    Action("create_audio_player", "parentNodePath nodeName* streamPath bus=Master autoplay:bool=false volumeDb:num=0 is3D:bool=false", presets.audio_player),
    Action("spawn_fps_controller", "parentNodePath nodeName=FpsController scriptPath=fps_controller.gd", builder.fps_controller),
    Action("create_health_bar_ui", "parentNodePath nodeName=HealthBar", builder.health_bar),
    Action("spawn_spinning_pickup", "parentNodePath nodeName=Pickup scriptPath=spinning_pickup.gd", builder.spinning_pickup),
    Action("create_particle_effect", "parentNodePath nodeName effect:(fire|smoke|rain|sparks)=sparks", builder.particle_effect),
    Action("generate_terrain_mesh", "parentNodePath nodeName=Terrain size:int>=1<=256=32 heightScale:num=5 seed:int=0 frequency:num=0.02 octaves:int>=1<=10=4", builder.terrain_mesh),
    Action("create_terrain_material", "materialPath=terrain_material.tres", builder.terrain_material),
    Action("create_trigger_area", "parentNodePath nodeName* is3D:bool=false", builder.trigger_area),
    Action("create_rigidbody", "parentNodePath nodeName* is3D:bool=false mass:num>=0.001=1", builder.rigid_body),
    Action("set_anchor_preset", f"nodePath* anchorPreset*:({_PRESETS})", presets.anchor_preset),
    Action("set_anchor_values", f"nodePath* {_SIDES}", presets.anchor_values),
)

_GAME: Final = (
    Action("start", "P scene resolution", playing.start),
    Action("stop", "P", playing.stop),
    Action("run", "P frames:int>=1<=36000 seconds:num>=0<=600 until:condition stripEvery:int>=1 maxSize:int>=16<=2048", playing.run),
    Action("input", "P events*:inputEvents", playing.send_input),
    Action("tree", "P nodePath maxDepth:int>=1 maxNodes:int>=1<=5000=200", playing.live_tree),
    Action("get_property", "P nodePath* property*", playing.get_live),
    Action("set_property", "P nodePath* property* value*:any", playing.set_live),
    Action("call", "P nodePath* method* args:list", playing.call_live),
    Action("evaluate", "P nodePath expression*", playing.evaluate, gated_operation="game.evaluate"),
    Action("screenshot", "P outputPath maxSize:int>=16<=4096=1280", playing.picture),
    Action("performance", "P", playing.performance),
)

_META: Final = (
    Action("server_info", "", workspace.server_info),
    Action("tool_search", "query* limit:int>=1<=50=5 context", workspace.search_tools),
    Action("tool_help", "tool* toolAction", workspace.tool_help),
)

MANAGER_TOOLS: Final = (
    Tool("godot_workspace_manager", "Workspace manager", "Launch, run, save and inspect a project.", WRITE, "", actions=_WORKSPACE, common_signature=f"mode:(auto|headless)=auto godotPath token host port:int>=1<=65535 {_TIMEOUT}", destructive=True, timeout=300.0, takes_project_lock=False),
    Tool("godot_scene_manager", "Scene manager", "Change the nodes of a scene.", WRITE, "", actions=_SCENE, common_signature=f"p s {_TIMEOUT}", destructive=True),
    Tool("godot_inspector_manager", "Inspector manager", "Inspect scenes and classes; set properties, signals and groups.", WRITE, "", actions=_INSPECTOR, common_signature=f"p s {_TIMEOUT}", destructive=True),
    Tool("godot_asset_manager", "Asset manager", "Files, imports and scene files of a project.", WRITE, "", actions=_ASSET, common_signature=_TIMEOUT, destructive=True, timeout=300.0),
    Tool("godot_code_manager", "Code manager", "Scripts, shaders and text files of a project.", WRITE, "", actions=_CODE, common_signature=_TIMEOUT, destructive=True),
    Tool("godot_project_config_manager", "Project config manager", "Settings, input map and saved data of a project.", WRITE, "", actions=_CONFIG, common_signature=_TIMEOUT, destructive=True),
    Tool("godot_builder_manager", "Builder manager", "Add common parts of a game: lights, primitives, menus, controllers, terrain.", WRITE, "", actions=_BUILDER, common_signature=f"P s {_TIMEOUT}"),
    Tool("godot_game_manager", "Game manager", "Play a game that waits between calls: run frames, send input, wait for a condition, look, take pictures.", READ, "", actions=_GAME, read_only=False, open_world=True, timeout=600.0),
    Tool("godot_log_manager", "Log manager", "Output of the running project.", READ, "", actions=_LOG),
    Tool("meta_tool_manager", "Tool guide", "Find a tool and see its parameters.", READ, "", actions=_META),
)
