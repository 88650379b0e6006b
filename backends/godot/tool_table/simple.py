"""Simple tools: each performs one operation."""

# One entry per line for readability; see `parameter_notation` for the signatures.
# fmt: off
# ruff: noqa: E501

from typing import Final

from backends.godot.handlers import (
    assets,
    exporting,
    inspection,
    node_attachments,
    nodes,
    playing,
    projects,
    raw_operations,
    running,
    scenes,
    scripts,
    settings,
    signals,
    workspace,
)
from backends.godot.tool import READ, SET, WRITE, Tool

_IMPORT, _EXPORT = 300.0, 600.0
_RESOURCES = "(StandardMaterial3D|ShaderMaterial|StyleBoxFlat|StyleBoxTexture|Theme|Environment|Sky|Gradient|Curve|AudioBusLayout|Animation|AnimationLibrary)"

SIMPLE_TOOLS: Final = (
    # ---- engine and running projects ----
    Tool("get_godot_version", "Godot version", "The version of the engine that this backend uses.", READ, "", projects.version),
    Tool("system_health", "System health", "Whether the engine and the editors can be reached.", READ, "includeMetrics:bool=true includeGodotStatus:bool=true", projects.health),
    Tool("run_project", "Run project", "Start the project or one of its scenes; get_debug_output returns what it prints.", READ, "P scene", running.start, editor_method="run_project", read_only=False, open_world=True),
    Tool("stop_project", "Stop project", "End the projects that you started.", READ, "", running.stop, editor_method="stop_project", read_only=False, destructive=True),
    Tool("launch_editor", "Launch editor", "Start the Godot editor with the project.", READ, "P", running.launch_editor, read_only=False, open_world=True),
    Tool("get_debug_output", "Debug output", "Output of the running or most recent project run, with its errors listed separately.", READ, "", running.get_output),
    Tool("start_debug_stream", "Start debug stream", "Start buffering output for godot://debug/stream.", SET, "port:int>=1<=65535 pollIntervalMs:int>=10<=10000", running.start_stream),
    Tool("stop_debug_stream", "Stop debug stream", "End the debug stream.", SET, "", running.stop_stream, destructive=True),
    Tool("get_debug_stream_status", "Debug stream status", "Whether the debug stream is on, and how many lines it has buffered.", READ, "", running.stream_status),
    Tool("take_screenshot", "Take screenshot", "Run a scene for a moment and take a picture of it.", READ, "P scenePath outputPath delay:num>=0<=30 maxSize:int>=16<=4096=1280", playing.take_screenshot, read_only=False, open_world=True),
    Tool("capture_editor_viewport", "Capture editor viewport", "Take a screenshot of the connected editor's viewport.", READ, "P viewport:(2d|3d)=2d outputPath=screenshots/editor_viewport.png", editor_method="capture_viewport"),
    # ---- projects ----
    Tool("list_projects", "List projects", "List the Godot projects below one of your directories.", READ, "directory* recursive:bool=false maxDepth:int>=1<=32 ignoreDirs:[str]", projects.list_projects),
    Tool("create_project", "Create project", "Create an empty project in one of your folders.", WRITE, "P name", projects.create, needs_project=False),
    Tool("get_project_info", "Project info", "Name, main scene, autoloads, and how many files of each kind.", READ, "P", projects.info),
    Tool("validate_project", "Validate project", "Compile every script and load every scene and resource.", READ, "P checkScripts:bool=true checkScenes:bool=true checkResources:bool=true", projects.validate, timeout=_EXPORT),
    Tool("get_project_settings", "Get project settings", "Settings of project.godot: all, a section, or one.", READ, "P section key", settings.get_settings),
    Tool("set_project_setting", "Set project setting", "Set one setting of project.godot; the rest of the file stays as it is.", SET, "P key* value* section", settings.set_setting),
    Tool("manage_autoloads", "Manage autoloads", "Add, remove or list scripts and scenes that are loaded at startup.", SET, "P action*:(add|remove|list) name path", settings.autoloads),
    Tool("manage_input_actions", "Manage input actions", "Add, remove or list actions of the input map.", SET, "P action*:(add|remove|list) name events:events deadzone:num>=0<=1=0.5", settings.input_actions),
    Tool("convert_3to4", "Convert 3 to 4", "Convert a project of Godot 3 to Godot 4.", WRITE, "sourcePath* targetPath noConvertSign:bool=false", exporting.convert, dangerous=True, timeout=_EXPORT, open_world=True),
    Tool("validate_conversion_3to4", "Validate conversion", "Report what converting a Godot 3 project would change.", READ, "sourcePath*", exporting.validate_conversion, timeout=_EXPORT),
    Tool("generate_docs", "Generate docs", "Write the reference of the project's scripts as XML, or of the engine if the project has no scripts.", WRITE, "P outputPath format:(xml|rst)=xml", exporting.generate_docs, timeout=_EXPORT),
    Tool("list_export_presets", "List export presets", "The export presets of the project.", READ, "P", exporting.list_presets),
    Tool("export_project", "Export project", "Build the project with one of its export presets.", READ, "P preset* outputPath* mode:(release|debug)=release", exporting.export_project, read_only=False, open_world=True, timeout=_EXPORT),
    Tool("export_pack", "Export pack", "Pack the project's data with one of its export presets.", READ, "P preset* outputPath*", exporting.export_pack, read_only=False, open_world=True, timeout=_EXPORT),
    # ---- scenes and nodes ----
    Tool("create_scene", "Create scene", "Make a scene with a root node.", WRITE, "P S rootNodeType=Node2D rootNodeName", scenes.create, editor_method="create_scene"),
    Tool("save_scene", "Save scene", "Save a scene as the engine writes it, or a copy of it.", SET, "P S newPath", scenes.resave, editor_method="save_scene"),
    Tool("list_scenes", "List scenes", "The scenes of the project.", READ, "P directory recursive:bool=true", scenes.list_scenes),
    Tool("get_node_tree", "Get node tree", "The nodes of a scene, as a JSON tree and as a text drawing.", READ, "P S maxDepth:int>=1 nodePath maxNodes:int>=1<=5000=500 offset:int>=0=0", inspection.tree),
    Tool("add_node", "Add node", "Add a node to a scene, with properties.", WRITE, "P S nodeType* nodeName* parentNodePath properties:object", nodes.add, editor_method="add_node"),
    Tool("edit_node", "Edit node", "Set properties of a node.", SET, "P S nodePath* properties*:object", nodes.edit, editor_method="edit_node"),
    Tool("remove_node", "Remove node", "Remove a node and all its descendants.", WRITE, "P S nodePath*", nodes.remove, editor_method="remove_node", destructive=True),
    Tool("rename_node", "Rename node", "Rename a node and update its signal connections.", WRITE, "P S nodePath* newName*", nodes.rename, editor_method="rename_node"),
    Tool("move_node", "Move node", "Move a node to another parent.", WRITE, "P S nodePath* newParentPath*", nodes.move, editor_method="reparent_node"),
    Tool("duplicate_node", "Duplicate node", "Copy a node with all its descendants.", WRITE, "P S nodePath* newName", nodes.duplicate, editor_method="duplicate_node"),
    Tool("instance_scene", "Instance scene", "Put an instance of one scene into another.", WRITE, "P S instancePath* parentNodePath instanceName", nodes.instance, editor_method="instance_scene"),
    Tool("connect_signal", "Connect signal", "Connect a node's signal to a method of another node.", WRITE, "P S fromNodePath* signal* toNodePath* method* flags:int>=0", signals.connect, editor_method="connect_signal"),
    Tool("manage_groups", "Manage groups", "Add, remove or list the groups of a node.", SET, "P S nodePath* action*:(add|remove|list) groups:[str]", signals.groups),
    Tool("load_sprite", "Load sprite", "Set the texture of a sprite.", SET, "P S nodePath* texturePath*", node_attachments.load_sprite),
    Tool("attach_script", "Attach script", "Attach a script to a node.", SET, "P S nodePath* scriptPath*", node_attachments.attach_script, editor_method="attach_script"),
    Tool("detach_script", "Detach script", "Detach the script from a node.", SET, "P S nodePath*", node_attachments.detach_script, editor_method="detach_script"),
    Tool("export_mesh_library", "Export mesh library", "Make a MeshLibrary of the meshes in a scene.", WRITE, "P S outputPath* meshItemNames:[str]", assets.export_mesh_library),
    Tool("get_uid", "Get UID", "The UID of a file.", READ, "P filePath*", scenes.get_uid),
    Tool("update_project_uids", "Update UIDs", "Assign UIDs to the files that have none.", SET, "P", scenes.update_uids, dangerous=True, timeout=_IMPORT),
    # ---- scripts ----
    Tool("list_scripts", "List scripts", "The scripts of the project.", READ, "P directory", scripts.list_scripts),
    Tool("read_script", "Read script", "The text of a script.", READ, "P scriptPath*", scripts.read),
    Tool("write_script", "Write script", "Write a script and report whether it compiles.", WRITE, "P scriptPath* content* overwrite:bool=false", scripts.write),
    Tool("delete_script", "Delete script", "Delete a script; a script that a scene uses requires force.", WRITE, "P scriptPath* force:bool=false", scripts.delete, destructive=True),
    Tool("get_script_errors", "Script errors", "Compiler errors of one script or of all scripts.", READ, "P scriptPath", scripts.check, timeout=_IMPORT),
    # ---- resources and assets ----
    Tool("create_resource", "Create resource", "Make a resource file.", WRITE, f"P resourcePath* resourceType*:{_RESOURCES} properties:object", assets.create_resource),
    Tool("list_resources", "List resources", "The resource files of the project.", READ, "P directory recursive:bool=true resourceType", assets.list_resources),
    Tool("list_assets", "List assets", "Textures, sounds, models and fonts of the project.", READ, "P directory recursive:bool=true category:(all|texture|audio|model|font)=all", assets.list_assets),
    Tool("import_asset", "Import asset", "Copy an asset into the project.", WRITE, "P sourcePath* destinationPath* overwrite:bool=false", assets.import_asset, open_world=True),
    Tool("reimport_assets", "Reimport assets", "Have the engine import assets again.", SET, "P assetPaths*:paths method:(touch|delete_import)=touch", assets.reimport, timeout=_IMPORT, open_world=True),
    Tool("batch_operations", "Batch operations", "Run several tools in sequence.", WRITE, "P operations*:operations stopOnError:bool=true maxOperations:int>=1<=100", raw_operations.run_tools, takes_project_lock=False, timeout=_EXPORT),
    # ---- setup and raw operations ----
    Tool("godot_import_project_assets", "Import assets", "Have the engine import all assets of the project.", SET, "P godotPath", assets.import_all, timeout=_IMPORT, open_world=True),
    Tool("godot_preflight", "Preflight", "Whether project, engine, editor and add-on are ready.", READ, "P godotPath host=127.0.0.1 port:int>=1<=65535=8765", projects.preflight),
    Tool("godot_sync_addon", "Sync add-on", "Install the Gatehouse editor plugin in the project.", SET, "P enablePlugin:bool=true ensureToken:bool=true token", workspace.sync_addon),
    Tool("godot_headless_op", "Headless operation", "Run one operation by name, without an editor.", WRITE, "P operation* params:object|str={}", raw_operations.run_operation, destructive=True),
    Tool("godot_headless_batch", "Headless batch", "Run several operations by name, without an editor.", WRITE, "P steps*:headlessSteps stopOnError:bool=true", raw_operations.run_batch, destructive=True, timeout=_IMPORT),
    Tool("godot_rpc", "Editor call", "Call one method of the connected editor.", WRITE, "request_json*:object|str timeoutMs:int>=1<=60000=10000", raw_operations.rpc, destructive=True),
    Tool("godot_inspect", "Editor inspection", "Ask the connected editor about a class or object.", READ, "query_json*:object|str timeoutMs:int>=1<=60000=10000", raw_operations.inspect),
    Tool("godot_editor_batch", "Editor batch", "Call several methods of the editor as one undo step.", WRITE, "steps*:editorSteps actionName stopOnError:bool=true timeoutMs:int>=1<=60000=10000", raw_operations.editor_batch, destructive=True),
)
