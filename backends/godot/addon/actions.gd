# Operations that the gateway may call in this editor: methods named `do_` and the operation. Scene edits: changes.gd.
@tool
extends "changes.gd"

const PROTOCOL := "1.1"
const EVENTS := {
	"create_scene": "scene_created",
	"add_node": "node_added",
	"instance_scene": "node_added",
	"duplicate_node": "node_added",
	"remove_node": "node_removed",
	"edit_node": "node_modified",
	"set_property": "node_modified",
	"rename_node": "node_modified",
	"move_node": "node_modified",
	"reparent_node": "node_modified",
	"undo": "node_modified",
	"redo": "node_modified",
	"attach_script": "script_attached",
	"detach_script": "script_detached",
}

var _events := []


func perform(operation: String, params: Dictionary) -> Dictionary:
	_failure = {}
	if operation == "bridge.auth":
		return {"success": true, "payload": {}}
	if operation == "bridge.hello":
		return {"success": true, "payload": {"protocolVersion": PROTOCOL, "capabilities": _methods()}}
	if not has_method("do_" + operation):
		return _failed("unsupported", "This editor does not know %s." % operation)
	if not _confined(params):
		return _failed("denied", "A path leaves the project.")
	var result: Variant = call("do_" + operation, params)
	if not _failure.is_empty():
		return _failure
	var payload: Dictionary = result if result is Dictionary else {}
	if EVENTS.has(operation):
		_note(EVENTS[operation], payload)
	return {"success": true, "payload": payload}


func _note(event: String, payload: Dictionary) -> void:
	var root := EditorInterface.get_edited_scene_root()
	var data := {"scene": root.scene_file_path if root else str(payload.get("scenePath", ""))}
	if payload.has("nodePath"):
		data["node"] = payload["nodePath"]
	_events.append([event, data])


# Returns and clears the events of the last request.
func take_events() -> Array:
	var taken := _events
	_events = []
	return taken


func _methods() -> Array:
	var names := []
	for each in get_method_list():
		if str(each["name"]).begins_with("do_"):
			names.append(str(each["name"]).trim_prefix("do_"))
	return names


# Whether all paths are inside the project: `res://` or relative, without `..`.
func _confined(params: Dictionary) -> bool:
	for name: String in params:
		var value: Variant = params[name]
		if value is String and (name.ends_with("_path") or name == "scene") and not "node" in name and not "parent" in name:
			if value.begins_with("/") or "://" in value.trim_prefix("res://") or ".." in value or "\\" in value:
				return false
	return true


func do_ping(_params: Dictionary) -> Variant:
	return {"summary": "pong"}


func do_open_scene(params: Dictionary) -> Variant:
	var root := _root(params)
	return {"summary": "Opened %s." % root.scene_file_path, "scene": root.scene_file_path} if root else null


func do_save_scene(params: Dictionary) -> Variant:
	var root := _root(params)
	if root == null:
		return null
	if params.has("new_path"):
		EditorInterface.save_scene_as(_res(params["new_path"]))
		return {"summary": "Saved %s." % _res(params["new_path"])}
	var code := EditorInterface.save_scene()
	if code != OK:
		return _fail("internal", "The editor could not save: %s." % error_string(code))
	return {"summary": "Saved %s." % root.scene_file_path, "scene": root.scene_file_path}


func do_save_all(_params: Dictionary) -> Variant:
	EditorInterface.save_all_scenes()
	return {"summary": "Saved all scenes."}


func do_create_scene(params: Dictionary) -> Variant:
	var path := _res(params["scene_path"])
	if FileAccess.file_exists(path):
		return _fail("denied", "%s exists already." % path)
	var root := _new_node(str(params.get("root_node_type", "Node2D")))
	if root == null:
		return null
	root.name = path.get_file().get_basename().to_pascal_case()
	DirAccess.make_dir_recursive_absolute(path.get_base_dir())
	var scene := PackedScene.new()
	scene.pack(root)
	root.free()
	var code := ResourceSaver.save(scene, path)
	if code != OK:
		return _fail("internal", "The editor could not save: %s." % error_string(code))
	EditorInterface.get_resource_filesystem().scan()
	EditorInterface.open_scene_from_path(path)
	return {"summary": "Made %s." % path, "scenePath": path}


func do_get_scene_tree(params: Dictionary) -> Variant:
	var root := _root(params)
	return {"scene": root.scene_file_path, "tree": _tree(root)} if root else null


func _tree(node: Node) -> Dictionary:
	var shown := {"name": str(node.name), "type": node.get_class(), "path": _path(node)}
	var below := node.get_children().filter(func(child: Node) -> bool: return child.owner != null)
	if not below.is_empty():
		shown["children"] = below.map(_tree)
	return shown


func do_add_nodes(params: Dictionary) -> Variant:
	var steps := []
	for item: Dictionary in params["items"]:
		var own := {"scene_path": params.get("scene_path", "")}
		for name: String in item:
			own[name.to_snake_case()] = item[name]
		steps.append({"method": "add_node", "params": own})
	return do_batch({"steps": steps, "action_name": "Add nodes", "stop_on_error": params.get("stop_on_error", true)})


func do_get_property(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null:
		return null
	if not params["property"] in node:
		return _fail("not_found", "%s has no property %s." % [node.get_class(), params["property"]])
	return {"nodePath": _path(node), "property": params["property"], "value": var_to_str(node.get(params["property"]))}


func _history() -> UndoRedo:
	var root := EditorInterface.get_edited_scene_root()
	var undo := _plugin.get_undo_redo()
	return undo.get_history_undo_redo(undo.get_object_history_id(root)) if root else null


func do_undo(_params: Dictionary) -> Variant:
	var history := _history()
	if history == null or not history.has_undo():
		return _fail("not_found", "There is nothing to undo.")
	var name := history.get_current_action_name()
	history.undo()
	return {"summary": "Took back: %s." % name}


func do_redo(_params: Dictionary) -> Variant:
	var history := _history()
	if history == null or not history.has_redo():
		return _fail("not_found", "There is nothing to redo.")
	history.redo()
	return {"summary": "Did again: %s." % history.get_current_action_name()}


func do_batch(params: Dictionary) -> Variant:
	_batch = "Gatehouse: %s %d" % [params.get("action_name", "Batch"), Time.get_ticks_usec()]
	_changed = 0
	var told := _events.size()
	var results := []
	var failure := {}
	for step: Dictionary in params["steps"]:
		var answer := perform(str(step["method"]), step.get("params", {})) if step["method"] != "batch" else _failed("invalid", "A batch cannot hold a batch.")
		results.append(answer)
		if not answer["success"] and params.get("stop_on_error", true):
			failure = answer
			break
	_batch = ""
	_failure = {}
	if not failure.is_empty():
		if _changed > 0:
			_history().undo()
		_events.resize(told)
		_failed(failure["error"]["code"], failure["error"]["message"], {"results": results, "rolledBack": true})
		return null
	return {"summary": "%d steps done." % results.size(), "results": results}


func do_select(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null:
		return null
	var selection := EditorInterface.get_selection()
	if not params.get("additive", false):
		selection.clear()
	selection.add_node(node)
	return {"summary": "Selected %s." % node.name, "nodePath": _path(node)}


func do_get_selection(_params: Dictionary) -> Variant:
	return {"nodes": EditorInterface.get_selection().get_selected_nodes().map(_path)}


func do_query(params: Dictionary) -> Variant:
	var root := _root(params)
	var found := []
	for node in _family(root) if root else []:
		var fits: bool = not params.has("name") or str(node.name) == params["name"]
		fits = fits and (not params.has("name_contains") or str(params["name_contains"]).to_lower() in str(node.name).to_lower())
		fits = fits and (not params.has("class_name") or node.is_class(params["class_name"]))
		fits = fits and (not params.has("group") or node.is_in_group(params["group"]))
		if fits and (params.get("include_root", true) or node != root):
			found.append({"path": _path(node), "name": str(node.name), "type": node.get_class()})
	return {"nodes": found.slice(0, int(params.get("limit", 100))), "total": found.size()}


func do_inspect(params: Dictionary) -> Variant:
	var type := str(params.get("class_name", ""))
	var node: Node = null
	if type.is_empty():
		node = _node(params)
		if node == null:
			return null
		type = node.get_class()
	if not ClassDB.class_exists(type):
		return _fail("not_found", "The engine has no class %s." % type)
	var names := func(entries: Array) -> Array: return entries.map(func(each: Dictionary) -> String: return str(each["name"]))
	var shown := {
		"class": type,
		"parent": str(ClassDB.get_parent_class(type)),
		"properties": names.call(ClassDB.class_get_property_list(type)),
		"methods": names.call(ClassDB.class_get_method_list(type)),
		"signals": names.call(ClassDB.class_get_signal_list(type)),
	}
	return shown.merged({"nodePath": _path(node)}) if node else shown


func do_get_current_scene(_params: Dictionary) -> Variant:
	var root := EditorInterface.get_edited_scene_root()
	return {"scene": root.scene_file_path if root else ""}


func do_run_project(params: Dictionary) -> Variant:
	if params.has("scene"):
		EditorInterface.play_custom_scene(_res(params["scene"]))
	else:
		EditorInterface.play_main_scene()
	return {"summary": "The project runs."}


func do_stop_project(_params: Dictionary) -> Variant:
	EditorInterface.stop_playing_scene()
	return {"summary": "Stopped."}


func do_scan(_params: Dictionary) -> Variant:
	EditorInterface.get_resource_filesystem().scan()
	return {"summary": "The editor looks for changed files."}


func do_reimport(params: Dictionary) -> Variant:
	var paths := PackedStringArray()
	for path: String in params.get("files", params.get("paths", [])):
		if ".." in path or path.begins_with("/"):
			return _fail("denied", "A path leaves the project.")
		paths.append(_res(path))
	EditorInterface.get_resource_filesystem().reimport_files(paths)
	return {"summary": "Imported %d files." % paths.size()}


func do_capture_viewport(params: Dictionary) -> Variant:
	if DisplayServer.get_name() == "headless":
		return _fail("unsupported", "There is nothing to take a picture of: this editor has no screen.")
	var view := EditorInterface.get_editor_viewport_3d() if params.get("viewport") == "3d" else EditorInterface.get_editor_viewport_2d()
	var path := _res(str(params.get("output_path", "screenshots/editor_viewport.png")))
	if path.get_extension() != "png":
		return _fail("invalid", "output_path must end in .png.")
	DirAccess.make_dir_recursive_absolute(path.get_base_dir())
	var code := view.get_texture().get_image().save_png(path)
	if code != OK:
		return _fail("internal", "The picture could not be saved: %s." % error_string(code))
	return {"summary": "Took %s." % path, "outputPath": path}
