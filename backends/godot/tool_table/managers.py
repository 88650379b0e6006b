"""The tools that take an action."""

# Rows read best one to a line; the notation says what each parameter is.
# fmt: off
# ruff: noqa: E501

from typing import Final

from backends.godot.handlers import (
    assets,
    inspection,
    node_attachments,
    nodes,
    projects,
    running,
    scenes,
    scripts,
    settings,
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
    Action("run", "p scene", running.start, editor="run_project"),
    Action("stop", "p", running.stop, editor="stop_project"),
    Action("smoke_test", "P scene waitMs:int>=100<=60000=2000 failOnIssues:bool=true", running.smoke_test),
    Action("new_scene", "P S rootNodeType=Node2D", scenes.create, editor="create_scene"),
    Action("open_scene", "p S", editor="open_scene"),
    Action("save_scene", "P S newPath", scenes.resave, editor="save_scene"),
    Action("save_all", "p", editor="save_all"),
    Action("restart", "P", running.restart),
    Action("get_state", "p", running.status),
    Action("guidelines.search", "P query* guidelinesFilePath maxMatches:int>=1=10", workspace.search_guidelines),
    Action("guidelines.get_section", "P section* guidelinesFilePath maxChars:int>=1=12000", workspace.guideline_section),
    Action("docs.search", "p query* maxResults:int>=1=10", workspace.search_docs),
    Action("docs.get_class", "p className*", workspace.class_docs),
    Action("doctor_report", "P reportRelativePath options:object", workspace.doctor),
)

_SCENE: Final = (
    Action("create", "nodeType* nodeName* parentNodePath props:object properties:object ensureUniqueName:bool=true", nodes.add, editor="add_node"),
    Action("update", "nodePath* props:object properties:object", nodes.edit, editor="edit_node"),
    Action("batch_create", "items*:items stopOnError:bool=true", nodes.add_many, editor="add_nodes"),
    Action("attach_script", "nodePath* scriptPath*", node_attachments.attach_script, editor="attach_script"),
    Action("attach_components", "nodePath* components*:components", nodes.attach_components),
    Action("rename", "nodePath* newName*", nodes.rename, editor="rename_node", operation="rename_node"),
    Action("move", "nodePath* index*:int>=0", nodes.move, editor="move_node", operation="move_node"),
    Action("duplicate", "nodePath* newName", nodes.duplicate, editor="duplicate_node"),
    Action("reparent", "nodePath* newParentPath* index:int>=0", nodes.move, editor="reparent_node"),
    Action("instance", "instanceScenePath* parentNodePath name props:object", nodes.instance, editor="instance_scene"),
    Action("remove", "nodePath*", nodes.remove, editor="remove_node", operation="remove_node"),
    Action("undo", "", editor="undo"),
    Action("redo", "", editor="redo"),
)

_INSPECTOR: Final = (
    Action("query", "name nameContains className group includeRoot:bool=true limit:int>=1<=1000", inspection.query, editor="query"),
    Action("scene_tree.get", "limit:int>=1", nodes.tree, editor="get_scene_tree"),
    Action("inspect", _ONE_OF, inspection.inspect, editor="inspect", exactly=_EXACTLY),
    Action("property_list", _ONE_OF, inspection.inspect, editor="inspect", exactly=_EXACTLY),
    Action("method_list", _ONE_OF, inspection.inspect, editor="inspect", exactly=_EXACTLY),
    Action("signals.list", _ONE_OF, inspection.inspect, editor="inspect", exactly=_EXACTLY),
    Action("select", "nodePath* additive:bool=false clear:bool=false", editor="select"),
    Action("get_selection", "", editor="get_selection"),
    Action("focus_node", "nodePath*", editor="select"),
    Action("connect_signal", "fromNodePath* signal* toNodePath* method*", nodes.connect, editor="connect_signal"),
    Action("disconnect_signal", "fromNodePath* signal* toNodePath* method*", nodes.disconnect, editor="disconnect_signal"),
    Action("signals.connections.list", "sourceNodePath* signal", inspection.connections),
    Action("resource.add", "nodePath* property* resourceType* resourcePath props:object", nodes.add_resource),
    Action("set_property", "nodePath* property* value*:any", nodes.set_property, editor="set_property"),
    Action("get_property", "nodePath* property*", inspection.inspect, editor="get_property"),
    Action("groups.get", "nodePath*", nodes.groups),
    Action("groups.add", "nodePath* groupName*", nodes.groups),
    Action("groups.remove", "nodePath* groupName*", nodes.groups),
    Action("set_collision_layer", "nodePath* collisionLayer:int>=0 collisionMask:int>=0", node_attachments.collision),
)

_ASSET: Final = (
    Action("load_texture", "P S nodePath* texturePath*", node_attachments.load_sprite),
    Action("get_uid", "P filePath*", scenes.get_uid),
    Action("uid_convert", "P filePath*", scenes.get_uid),
    Action("file_exists", "P filePath*", assets.exists),
    Action("scan", "p godotPath", assets.import_all, editor="scan"),
    Action("reimport", "p files:paths paths:paths", assets.reimport, editor="reimport", exactly="files paths"),
    Action("auto_import_check", "p files:paths paths:paths forceReimport:bool=false", assets.import_check, exactly="files paths"),
    Action("create_folder", "P dirPath* createParents:bool=true", assets.make_folder),
    Action("list_resources", "P dirPath=res:// recursive:bool=true maxResults:int>=1=200", assets.resources),
    Action("search_files", "P pattern* directory recursive:bool=true maxResults:int>=1=200", assets.search),
    Action("scene.read", "P S maxChars:int>=1=12000", scenes.read),
    Action("scene.delete", "P S", scenes.delete, operation="scene.delete"),
    Action("scene.duplicate", "P sourceScenePath* destScenePath*", scenes.duplicate),
    Action("scene.rename", "P S newScenePath*", scenes.rename, operation="scene.rename"),
    Action("scene.replace_resource", "P S oldResource* newResource*", scenes.replace_resource),
)

_CODE: Final = (
    Action("script.create", "P scriptPath* content template=basic_node className overwrite:bool=false", scripts.create),
    Action("script.read", "P scriptPath* maxChars:int>=1=12000", scripts.read),
    Action("script.attach", "P s nodePath* scriptPath*", node_attachments.attach_script, editor="attach_script"),
    Action("gdscript.eval_restricted", "P expression code vars:object variables:object", scripts.evaluate, exactly="expression code"),
    Action("shader.create", "P shaderPath* content* overwrite:bool=false", scripts.shader),
    Action("shader.apply", "P s nodePath* shaderPath* materialProperty=material", node_attachments.apply_shader),
    Action("file.read", "P filePath*", scripts.read_text),
    Action("file.write", "P filePath* content* overwrite:bool=false", scripts.write_text),
    Action("file.edit", "P filePath* find* replace* regex:bool=false maxReplacements:int>=1=50 dryRun:bool=false", scripts.edit),
    Action("file.write_binary", "P filePath* base64* overwrite:bool=false", scripts.write_binary),
)

_CONFIG: Final = (
    Action("project_info.get", "P", projects.info),
    Action("save_game_data", "P key* value*:any", settings.save_data),
    Action("load_game_data", "P key* defaultValue:any", settings.load_data),
    Action("input_map.setup", "P actions*:mapActions", settings.input_map),
    Action("project_setting.set", "P key* value*:any", settings.put, operation="project_setting.set"),
    Action("project_setting.get", "P key*", settings.get),
    Action("errors.get_recent", "p maxMatches:int>=1=50", running.poll),
)

_POLL = "p cursor:int>=0 maxBytes:int>=1=65536 maxMatches:int>=1=50 onlyErrors:bool pattern"
_LOG: Final = (
    Action("poll", f"{_POLL} openScriptOnError:bool=false", running.poll),
    Action("tail", _POLL, running.poll),
    Action("clear_output", "p", running.clear),
)

_META: Final = (
    Action("server_info", "", workspace.server_info),
    Action("tool_search", "query* limit:int>=1<=50=5 context", workspace.search_tools),
    Action("tool_help", "tool* toolAction", workspace.tool_help),
)

MANAGERS: Final = (
    Tool("godot_workspace_manager", "Workspace manager", "Start, run, save and look after a project.", WRITE, "", actions=_WORKSPACE, common=f"mode:(auto|headless)=auto godotPath token host port:int>=1<=65535 {_TIMEOUT}", destructive=True, timeout=300.0, locks=False),
    Tool("godot_scene_manager", "Scene manager", "Change the nodes of a scene.", WRITE, "", actions=_SCENE, common=f"p s {_TIMEOUT}", destructive=True),
    Tool("godot_inspector_manager", "Inspector manager", "Look into scenes and classes; set properties, signals and groups.", WRITE, "", actions=_INSPECTOR, common=f"p s {_TIMEOUT}", destructive=True),
    Tool("godot_asset_manager", "Asset manager", "Files, imports and scene files of a project.", WRITE, "", actions=_ASSET, common=_TIMEOUT, destructive=True, timeout=300.0),
    Tool("godot_code_manager", "Code manager", "Scripts, shaders and text files of a project.", WRITE, "", actions=_CODE, common=_TIMEOUT, destructive=True),
    Tool("godot_project_config_manager", "Project config manager", "Settings, input map and saved data of a project.", WRITE, "", actions=_CONFIG, common=_TIMEOUT, destructive=True),
    Tool("godot_log_manager", "Log manager", "What the project that runs has said.", READ, "", actions=_LOG),
    Tool("meta_tool_manager", "Tool guide", "Find a tool and see its parameters.", READ, "", actions=_META),
)
