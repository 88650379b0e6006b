# Operations that change a scene.
@tool
extends "base.gd"


func do_add_node(params: Dictionary) -> Variant:
	var parent := _node(params, "parent_node_path")
	var node := _new_node(str(params["node_type"])) if parent else null
	if node == null:
		return null
	return _adopt(parent, node, str(params["node_name"]), params)


func _adopt(parent: Node, node: Node, name: String, params: Dictionary) -> Variant:
	var given: Dictionary = params.get("properties", {}).merged(params.get("props", {}))
	var settled := _settled(node, given)
	if not params.get("ensure_unique_name", false):
		_free_name(parent, name)
	if not _failure.is_empty():
		node.free()
		return null
	node.name = name
	for each: String in settled:
		node.set(each, settled[each])
	var root := EditorInterface.get_edited_scene_root()
	var undo := _begin("add " + name, root)
	undo.add_do_method(parent, "add_child", node, true)
	undo.add_do_property(node, "owner", root)
	undo.add_do_reference(node)
	undo.add_undo_method(parent, "remove_child", node)
	_commit(undo)
	return {"summary": "Added %s." % node.name, "nodePath": _path(node), "nodeType": node.get_class()}


func do_instance_scene(params: Dictionary) -> Variant:
	var parent := _node(params, "parent_node_path")
	var path := _res(str(params.get("instance_path", params.get("instance_scene_path", ""))))
	if parent == null or not ResourceLoader.exists(path):
		return _fail("not_found", "There is no scene %s." % path)
	var node: Node = load(path).instantiate(PackedScene.GEN_EDIT_STATE_INSTANCE)
	var name := str(params.get("instance_name", params.get("name", node.name)))
	return _adopt(parent, node, name, params)


func do_edit_node(params: Dictionary) -> Variant:
	var node := _node(params)
	var given: Dictionary = params.get("properties", {}).merged(params.get("props", {}))
	var settled := _settled(node, given) if node else {}
	if not _failure.is_empty():
		return null
	var undo := _begin("edit " + str(node.name), node)
	for name: String in settled:
		undo.add_do_property(node, name, settled[name])
		undo.add_undo_property(node, name, node.get(name))
	_commit(undo)
	for name: String in settled:
		if not settled[name] is Object and not _values.same(node.get(name), settled[name]):
			return _fail("invalid", "%s does not take this value." % name)
	return {"summary": "Set %d properties." % settled.size(), "nodePath": _path(node), "properties": settled.keys()}


func do_set_property(params: Dictionary) -> Variant:
	return do_edit_node(params.merged({"properties": {params["property"]: params["value"]}}, true))


func do_remove_node(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null or node == EditorInterface.get_edited_scene_root():
		return _fail("invalid", "The root of a scene cannot be removed.")
	var parent := node.get_parent()
	var path := _path(node)
	var undo := _begin("remove " + str(node.name), parent)
	undo.add_do_method(parent, "remove_child", node)
	undo.add_undo_method(parent, "add_child", node, true)
	undo.add_undo_method(parent, "move_child", node, node.get_index())
	for each in _family(node):
		undo.add_undo_property(each, "owner", each.owner)
	undo.add_undo_reference(node)
	_commit(undo)
	return {"summary": "Removed %s." % path, "nodePath": path}


func do_rename_node(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null or (node.get_parent() and not _free_name(node.get_parent(), str(params["new_name"]))):
		return null
	var undo := _begin("rename " + str(node.name), node)
	undo.add_do_property(node, "name", str(params["new_name"]))
	undo.add_undo_property(node, "name", str(node.name))
	_commit(undo)
	return {"summary": "Renamed it to %s." % node.name, "nodePath": _path(node)}


func do_move_node(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null or node == EditorInterface.get_edited_scene_root():
		return _fail("invalid", "The root of a scene cannot be moved.")
	var parent := node.get_parent()
	var undo := _begin("move " + str(node.name), parent)
	undo.add_do_method(parent, "move_child", node, mini(int(params["index"]), parent.get_child_count() - 1))
	undo.add_undo_method(parent, "move_child", node, node.get_index())
	_commit(undo)
	return {"summary": "Moved %s." % node.name, "nodePath": _path(node), "index": node.get_index()}


func do_reparent_node(params: Dictionary) -> Variant:
	var node := _node(params)
	var target := _node(params, "new_parent_path") if node else null
	if target == null:
		return null
	if node == EditorInterface.get_edited_scene_root() or target == node or node.is_ancestor_of(target):
		return _fail("invalid", "A node cannot go below itself.")
	if not _free_name(target, str(node.name)):
		return null
	var parent := node.get_parent()
	var undo := _begin("reparent " + str(node.name), parent)
	for pair: Array in [["do", target, -1], ["undo", parent, node.get_index()]]:
		var add := Callable(undo, "add_%s_method" % pair[0])
		add.call(parent if pair[0] == "do" else target, "remove_child", node)
		add.call(pair[1], "add_child", node, true)
		if pair[2] >= 0:
			add.call(pair[1], "move_child", node, pair[2])
		for each in _family(node):
			Callable(undo, "add_%s_property" % pair[0]).call(each, "owner", each.owner)
	_commit(undo)
	return {"summary": "Moved it below %s." % target.name, "nodePath": _path(node)}


func do_duplicate_node(params: Dictionary) -> Variant:
	var node := _node(params)
	if node == null or node == EditorInterface.get_edited_scene_root():
		return _fail("invalid", "The root of a scene cannot be duplicated.")
	var copy := node.duplicate()
	var root := EditorInterface.get_edited_scene_root()
	if params.has("new_name"):
		if not _free_name(node.get_parent(), str(params["new_name"])):
			copy.free()
			return null
		copy.name = str(params["new_name"])
	var undo := _begin("duplicate " + str(node.name), root)
	undo.add_do_method(node.get_parent(), "add_child", copy, true)
	undo.add_do_method(self, "_own", copy, node, root)
	undo.add_do_reference(copy)
	undo.add_undo_method(node.get_parent(), "remove_child", copy)
	_commit(undo)
	return {"summary": "Duplicated it as %s." % copy.name, "nodePath": _path(copy)}


func _own(copy: Node, original: Node, root: Node) -> void:
	if original.owner != null:
		copy.owner = root
	for index in mini(copy.get_child_count(), original.get_child_count()):
		if original.get_child(index).owner == root:
			_own(copy.get_child(index), original.get_child(index), root)


func do_connect_signal(params: Dictionary) -> Variant:
	return _signal(params, "connect")


func do_disconnect_signal(params: Dictionary) -> Variant:
	return _signal(params, "disconnect")


func _signal(params: Dictionary, what: String) -> Variant:
	var source := _node(params, "from_node_path")
	var target := _node(params, "to_node_path") if source else null
	if target == null:
		return null
	var name := str(params["signal"])
	var method := Callable(target, str(params["method"]))
	if not source.has_signal(name):
		return _fail("not_found", "%s has no signal %s." % [source.get_class(), name])
	if source.is_connected(name, method) == (what == "connect"):
		return _fail("not_found" if what == "disconnect" else "denied", "It is %sed already." % what)
	var undo := _begin(what + " " + name, source)
	var on := [name, method, CONNECT_PERSIST | int(params.get("flags", 0))]
	if what == "connect":
		undo.add_do_method(source, "connect", on[0], on[1], on[2])
		undo.add_undo_method(source, "disconnect", on[0], on[1])
	else:
		undo.add_do_method(source, "disconnect", on[0], on[1])
		undo.add_undo_method(source, "connect", on[0], on[1], on[2])
	_commit(undo)
	return {"summary": "%sed %s." % [what.capitalize(), name]}


func do_attach_script(params: Dictionary) -> Variant:
	var path := _res(str(params["script_path"]))
	if not ResourceLoader.exists(path):
		return _fail("not_found", "There is no script %s." % path)
	return _script(params, load(path))


func do_detach_script(params: Dictionary) -> Variant:
	return _script(params, null)


func _script(params: Dictionary, script: Variant) -> Variant:
	var node := _node(params)
	if node == null:
		return null
	var undo := _begin("script of " + str(node.name), node)
	undo.add_do_property(node, "script", script)
	undo.add_undo_property(node, "script", node.get_script())
	_commit(undo)
	return {"summary": "Set the script of %s." % node.name, "nodePath": _path(node)}
