# Access to the edited scene, and helpers that make each change an undoable action.
@tool
extends RefCounted

var _plugin: EditorPlugin
var _values: RefCounted
var _failure := {}
var _batch := ""
var _changed := 0


func _init(plugin: EditorPlugin) -> void:
	_plugin = plugin
	_values = preload("values.gd").new()


func _failed(code: String, message: String, details := {}) -> Dictionary:
	_failure = {"success": false, "error": {"code": code, "message": message, "retryable": false, "details": details}}
	return _failure


func _fail(code: String, message: String) -> Variant:
	if _failure.is_empty():
		_failed(code, message)
	return null


func _res(path: String) -> String:
	return path if path.begins_with("res://") else "res://" + path


# Returns the root of the requested scene; opens the scene if another one is being edited.
func _root(params: Dictionary) -> Node:
	var wanted := str(params.get("scene_path", ""))
	var root := EditorInterface.get_edited_scene_root()
	if not wanted.is_empty() and (root == null or root.scene_file_path != _res(wanted)):
		if not ResourceLoader.exists(_res(wanted)):
			_fail("not_found", "There is no scene %s." % _res(wanted))
			return null
		EditorInterface.open_scene_from_path(_res(wanted))
		root = EditorInterface.get_edited_scene_root()
	if root == null or (not wanted.is_empty() and root.scene_file_path != _res(wanted)):
		_fail("no_scene", "No scene is open in the editor.")
		return null
	return root


func _node(params: Dictionary, name := "node_path") -> Node:
	var root := _root(params)
	if root == null:
		return null
	var path := str(params.get(name, ".")).trim_prefix("/").trim_prefix("./")
	if path in ["", ".", "root", str(root.name)]:
		return root
	var found := root.get_node_or_null(path)
	if found == null:
		for lead in ["root/", str(root.name) + "/"]:
			if found == null and path.begins_with(lead):
				found = root.get_node_or_null(path.trim_prefix(lead))
	if found == null or (found != root and found.owner == null):
		_fail("not_found", "There is no node %s in this scene." % path)
		return null
	return found


func _path(node: Node) -> String:
	return str(EditorInterface.get_edited_scene_root().get_path_to(node))


func _begin(name: String, context: Node) -> EditorUndoRedoManager:
	var undo := _plugin.get_undo_redo()
	# Steps of a batch share a name and merge into one action, so that one undo reverts all of them.
	if _batch.is_empty():
		undo.create_action("Gatehouse: " + name, UndoRedo.MERGE_DISABLE, context)
	else:
		undo.create_action(_batch, UndoRedo.MERGE_ALL, context)
	return undo


func _commit(undo: EditorUndoRedoManager) -> void:
	undo.commit_action()
	_changed += 1


func _new_node(type: String) -> Node:
	if ClassDB.class_exists(type) and ClassDB.is_parent_class(type, "Node") and ClassDB.can_instantiate(type):
		return ClassDB.instantiate(type)
	_fail("invalid", "The engine cannot make a %s." % type)
	return null


func _free_name(parent: Node, name: String) -> bool:
	for child in parent.get_children():
		if str(child.name) == name:
			_fail("denied", "There is a node '%s' there already." % name)
			return false
	return true


func _settled(node: Node, properties: Dictionary) -> Dictionary:
	var settled := {}
	for name: String in properties:
		settled[name] = _values.settled(node, node.get_script(), name, properties[name])
		if not _values.failure.is_empty():
			_fail(_values.failure["kind"], _values.failure["message"])
			return {}
	return settled


func _family(node: Node) -> Array[Node]:
	var all: Array[Node] = [node]
	for child in node.get_children():
		if child.owner != null:
			all.append_array(_family(child))
	return all
